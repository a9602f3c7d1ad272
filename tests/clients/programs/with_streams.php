<?php
// PHP's own streams, which read no proxy variable: the program names the proxy. Usage: with_streams.php BASE
$base = $argv[1];
$options = [];
$proxy = getenv('http_proxy');
if ($proxy) {
    $options = ['proxy' => str_replace('http://', 'tcp://', $proxy), 'request_fulluri' => str_starts_with($base, 'http:')];
}
$context = stream_context_create(['http' => $options]);
for ($n = 0; $n < 5; $n++) {
    $text = file_get_contents("$base/json?n=$n", false, $context);
    if ($text !== "{\"n\":\"$n\"}") {
        fwrite(STDERR, "got $text\n");
        exit(1);
    }
}
if (strlen(file_get_contents("$base/large", false, $context)) !== 4194304) {
    exit(1);
}
echo "spoke\n";
