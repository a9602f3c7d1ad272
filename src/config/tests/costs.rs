//! Claims about what rules say of costs.

use super::{load, problems, rule};

fn said(keys: &str) -> String {
    problems(&format!("[[rule]]\nhost = 'a.test'\nlimits = ['9/s', '900 tokens/min']\n{keys}"))
}

#[test]
fn a_length_needs_answers_that_tell_or_what_a_byte_is() {
    assert_eq!(
        said("cost = 'tokens=length'"),
        "error: a.toml:4: `cost`: no answer tells how many tokens a byte is, so that nothing can be learned of lengths | \
         write usage = [\"tokens=MEMBER\"], or say what a byte is: \"tokens=length*0.25\""
    );
    for good in ["cost = 'tokens=length*0.25'", "cost = 'tokens=length'\nusage = 'tokens=n'"] {
        assert_eq!(said(good), "");
    }
    // The host's own rule has the usage of narrower ones.
    let narrower = "[[rule]]\nhost = 'a.test'\nmethod = 'POST'\ncost = 'tokens=length'";
    assert_eq!(said(&format!("usage = 'tokens=n'\n{narrower}")), "");
    assert!(said(&format!("cost = 'tokens=5'\n{narrower}")).starts_with("error: a.toml:8: `cost`: no answer tells"));
    let wrong = said("cost = 'points=length*2, tokens=1'");
    assert!(wrong.starts_with("error: a.toml:4: `cost`: no limit counts points | write limits = "), "{wrong}");
    let config = load("[[rule]]\nhost = 'a'\npreset = 'openai'\nlimits = '9 tokens/s'\ncost = 'tokens=length'");
    assert_eq!(rule(&config, "a").cost.as_ref().unwrap().to_string(), "tokens=length");
}

#[test]
fn what_stands_in_bodies_needs_that_they_are_read() {
    let cost = "cost = 'tokens=body:max_tokens'";
    assert_eq!(
        said(cost),
        "error: a.toml:4: `cost`: bodies are not read before their requests leave | write read-body = \"8KiB\" into the \
         rule of the host: so much is read before a request waits"
    );
    assert_eq!(said(&format!("{cost}\nread-body = '8KiB'")), "");
    assert_eq!(
        said(&format!("read-body = '8KiB'\ncost = 'tokens=5'\n[[rule]]\nhost = 'a.test'\npath = '/x'\n{cost}")),
        ""
    );
    let narrow = said("cost = 'tokens=5'\n[[rule]]\nhost = 'a.test'\npath = '/x'\nread-body = '8KiB'");
    assert!(narrow.contains("`read-body` is a matter of a whole host"), "{narrow}");
}
