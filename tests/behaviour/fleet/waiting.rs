//! Requests that wait for tokens need no processor.

use super::*;

/// Each answer reports a sixth of what a minute has of input and of output tokens: all are used after a moment, and every
/// request lacks both.
#[test]
fn members_whose_output_tokens_are_scarce_use_hardly_any_processor_time_while_they_wait() {
    let used = "{\"input\":10,\"output\":100}";
    let api = Upstream::always(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{used}",
        used.len()
    ));
    let (host, store) = (api.address(), Redis::for_a_fleet());
    let config = format!(
        "store = \"{}\"\n[[rule]]\nhost = \"{host}\"\nlimits = [\"60 input-tokens/min\", \"600 output-tokens/min\"]\n\
         usage = [\"input-tokens=input\", \"output-tokens=output\"]\n",
        store.url()
    );
    let members = [(); 3].map(|()| Andante::with_config(&config));
    for member in members.iter().cycle().take(12) {
        let (proxy, ask) = (member.proxy(), format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        thread::spawn(move || work(proxy, &ask));
    }
    thread::park_timeout(4 * SECOND);
    for member in &members {
        assert!(member.status()["lanes"][0]["waiting"].as_u64().unwrap() > 0);
    }
    let before = members.each_ref().map(Andante::ticks);
    thread::park_timeout(4 * SECOND);
    for (member, before) in members.iter().zip(before) {
        // A loop between the lane and the task that talks to the store took 10 to 21% of a core.
        let spent = member.ticks() - before;
        assert!(spent <= 16, "{spent} of 400 ticks to wait");
    }
}
