vcl 4.1;

import vsthrottle;

backend default {{
    .host = "{address}";
    .port = "{backend}";
}}

sub vcl_recv {{
    if (vsthrottle.is_denied("all", {count}, {seconds}s)) {{
        return (synth(429, "Too Many Requests"));
    }}
    return (pass);
}}
