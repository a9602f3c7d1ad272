<?php
// PHP's curl. Usage: with_curl.php BASE
$base = $argv[1];
$upload = str_repeat("upload\n", 20000);
$events = '';
for ($n = 0; $n < 20; $n++) {
    $events .= "id: $n\ndata: event $n\n\n";
}
$steps = [];
for ($n = 0; $n < 5; $n++) {
    $steps[] = ["/json?n=$n", null, "{\"n\":\"$n\"}"];
}
$steps[] = ['/upload', $upload, '{"length":"' . strlen($upload) . '"}'];
$steps[] = ['/events', null, $events];
$steps[] = ['/large', null, str_repeat("andante\n", 512 * 1024)];

$curl = curl_init();
foreach ($steps as [$path, $body, $expected]) {
    curl_setopt_array($curl, [CURLOPT_URL => $base . $path, CURLOPT_RETURNTRANSFER => true, CURLOPT_HTTPGET => true]);
    if ($body !== null) {
        curl_setopt($curl, CURLOPT_POSTFIELDS, $body);
    }
    $text = curl_exec($curl);
    $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
    if ($status !== 200 || $text !== $expected) {
        fwrite(STDERR, "$path: got $status " . curl_error($curl) . substr((string) $text, 0, 200) . "\n");
        exit(1);
    }
}
echo "spoke\n";
