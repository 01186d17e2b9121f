"""ssh settings that are the same in every inventory.

What stands here wins over the group `all` in an inventory file. So only what no inventory
sets itself; a group or a host can still override it.
"""

# A host whose key nobody has checked is not a host of ours.
ssh_strict_host_key_checking = "yes"
# The key that the inventory names, and no other.
ssh_look_for_keys = False
# A node that reboots refuses connections for a moment.
ssh_connect_retries = 2
ssh_connect_retry_min_delay = 1.0
ssh_connect_retry_max_delay = 3.0
# Seconds; paramiko would wait an hour for a channel.
ssh_paramiko_connect_kwargs = {"banner_timeout": 15, "auth_timeout": 15, "channel_timeout": 15}
