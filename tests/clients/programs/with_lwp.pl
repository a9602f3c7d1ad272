# Perl's LWP. Usage: with_lwp.pl BASE
use strict;
use warnings;
use LWP::UserAgent;
use HTTP::Request;

my $base = shift;
my $upload = "upload\n" x 20_000;
my @steps = map { [GET => "/json?n=$_", undef, qq({"n":"$_"})] } 0 .. 4;
push @steps, [POST => '/upload', $upload, '{"length":"' . length($upload) . '"}'];
push @steps, [GET => '/events', undef, join '', map { "id: $_\ndata: event $_\n\n" } 0 .. 19];
push @steps, [GET => '/large', undef, "andante\n" x (512 * 1024)];

my $agent = LWP::UserAgent->new(keep_alive => 1);
for (@steps) {
    my ($method, $path, $body, $expected) = @$_;
    my $request = HTTP::Request->new($method => $base . $path);
    $request->content($body) if defined $body;
    my $answer = $agent->request($request);
    die "$method $path: got ", $answer->status_line, ' ', substr($answer->content, 0, 200), "\n"
        unless $answer->code == 200 && $answer->content eq $expected;
}
print "spoke\n";
