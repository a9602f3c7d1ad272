//! The live page's files, which are part of the program, and the restrictions on browsers that show it.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// A file of the page.
pub(super) struct Asset {
    pub(super) path: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All files of the page.
const ASSETS: &[Asset] = &[
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("page/index.html") },
    Asset { path: "/page/style.css", kind: "text/css; charset=utf-8", text: include_str!("page/style.css") },
    Asset { path: "/page/icon.svg", kind: "image/svg+xml", text: include_str!("page/icon.svg") },
    Asset { path: "/page/main.js", kind: SCRIPT, text: include_str!("page/main.js") },
    Asset { path: "/page/lanes.js", kind: SCRIPT, text: include_str!("page/lanes.js") },
    Asset { path: "/page/lane.js", kind: SCRIPT, text: include_str!("page/lane.js") },
    Asset { path: "/page/charts.js", kind: SCRIPT, text: include_str!("page/charts.js") },
    Asset { path: "/page/overview.js", kind: SCRIPT, text: include_str!("page/overview.js") },
    Asset { path: "/page/history.js", kind: SCRIPT, text: include_str!("page/history.js") },
    Asset { path: "/page/problems.js", kind: SCRIPT, text: include_str!("page/problems.js") },
    Asset { path: "/page/fleet.js", kind: SCRIPT, text: include_str!("page/fleet.js") },
    Asset { path: "/page/plan.js", kind: SCRIPT, text: include_str!("page/plan.js") },
    Asset { path: "/page/dom.js", kind: SCRIPT, text: include_str!("page/dom.js") },
    Asset { path: "/page/news.js", kind: SCRIPT, text: include_str!("page/news.js") },
    Asset { path: "/page/steer.js", kind: SCRIPT, text: include_str!("page/steer.js") },
    Asset { path: "/page/words.js", kind: SCRIPT, text: include_str!("page/words.js") },
];

/// Forbids foreign resources, inline scripts and framing. So text from an API or a worker cannot do anything even if it
/// gets into the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// The file at `path`.
pub(super) fn at(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

/// Limits what browsers may do with a page.
pub(super) fn confine(fields: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_small_and_name_each_other_only() {
        let size: usize = ASSETS.iter().map(|asset| asset.text.len()).sum();
        assert!(size <= 120 * 1024, "{size} bytes");
        for asset in ASSETS {
            for (at, _) in asset.text.match_indices("/page/") {
                let path: String = asset.text[at..].chars().take_while(|c| !"'\"`)".contains(*c)).collect();
                assert!(super::at(&path).is_some(), "{} names {path}", asset.path);
            }
            for (at, _) in asset.text.match_indices("://") {
                let found = &asset.text[at.saturating_sub(10)..(at + 20).min(asset.text.len())];
                assert!(found.contains("http://www.w3.org/"), "{} names another place: {found}", asset.path);
            }
        }
    }

    #[test]
    fn scripts_put_text_in_as_text() {
        for asset in ASSETS {
            for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!asset.text.contains(way), "{} says {way}", asset.path);
            }
            assert!(!asset.text.contains("style=") && !asset.text.contains("onclick="), "{}", asset.path);
        }
    }
}
