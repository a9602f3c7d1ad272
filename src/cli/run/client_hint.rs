//! Advice for clients that do not read the proxy variables by themselves.

use std::{ffi::OsStr, path::Path};

/// Advice for the clients of this program, if the variables do not suffice.
pub(super) fn of(command: &OsStr) -> Option<&'static str> {
    let name = Path::new(command).file_name()?.to_str()?;
    match name {
        "node" | "npx" | "npm" | "yarn" | "pnpm" | "tsx" | "nodejs" => Some(
            "fetch of Node.js reads these variables from 22.21 and 24.5 on (NODE_USE_ENV_PROXY=1, which is set); an older one \
             needs undici's EnvHttpProxyAgent, or a gateway address",
        ),
        name if name.starts_with("python") || matches!(name, "uv" | "poetry" | "pytest") => {
            Some("aiohttp reads these variables with ClientSession(trust_env=True) only")
        }
        "java" | "mvn" | "gradle" => {
            Some("Java reads JAVA_TOOL_OPTIONS, which names the proxy for its HttpURLConnection")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_whose_clients_need_more_are_known_by_their_names() {
        let hint = |command: &str| of(OsStr::new(command)).unwrap_or_default();
        assert!(hint("/usr/bin/node").contains("from 22.21") && hint("python3.12").contains("trust_env=True"));
        assert_eq!(hint("curl"), "");
    }
}
