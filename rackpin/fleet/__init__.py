"""What a fleet remembers of its nodes: identity, whether they may serve, who keeps one out."""
