# Simulated: what NCCL's ranks have of each other. Every host but the launcher's sends one line,
# "RANK<tab>NETWORK<tab>WRONG<tab>WHY<tab>NAME", and ends when rank 0 does; rank 0 waits for all.
use strict;
use warnings;
use IO::Socket::INET;
my ($size, $local) = @ENV{'OMPI_COMM_WORLD_SIZE', 'OMPI_COMM_WORLD_LOCAL_SIZE'};
my $rank = $ENV{OMPI_COMM_WORLD_RANK};
my ($job) = ($ENV{PMIX_NAMESPACE} =~ /(\d+)/);
# below the ports that outgoing connections take
my $port = 23000 + ($job >> 16) % 9000;
my %conf;
open(my $file, '<', "$ENV{AT}/conf") or die "conf: $!";
while (<$file>) { chomp; my ($key, $value) = split /\t/, $_, 2; $conf{$key} = $value }
exec @ARGV or die "$ARGV[0]: $!" if $size == $local;
exit 0 if $rank % $local;
if ($rank > 0) {
	my $log = fork() // die "fork: $!";
	if (!$log) { exec @ARGV or die "$ARGV[0]: $!" }
	waitpid $log, 0;
	my ($launcher) = split / /, $ENV{SSH_CONNECTION} // die "not started by ssh\n";
	my $peer;
	for (1 .. 600) {
		$peer = IO::Socket::INET->new(PeerAddr => $launcher, PeerPort => $port, Timeout => 5) and last;
		select undef, undef, undef, 0.1;
	}
	die "rank 0 does not answer\n" if !$peer;
	print $peer join("\t", $rank, @conf{'network', 'wrong'}, $conf{why} // '', $conf{name}), "\n";
	$peer->flush;
	my $end = <$peer>;
	exit 0;
}
my $server = IO::Socket::INET->new(LocalPort => $port, Listen => 256, ReuseAddr => 1)
	or die "port $port: $!\n";
my (@open, @told);
while (@open < $size / $local - 1) {
	my $peer = $server->accept or next;
	my $line = <$peer> // next;
	push @open, $peer;
	push @told, $line;
}
$ENV{PEERS} = join '', @told;
my $status = system @ARGV;
exit($status >> 8 || ($status & 127 ? 1 : 0));
