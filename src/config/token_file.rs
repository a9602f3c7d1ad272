//! The file of the admin token. Never shows the name of a missing file: users write the token itself instead of the
//! file's name, and errors end up in logs.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Reason why there is no token to read.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// No file has this name.
    #[error("there is no such file; its name is not shown here, because it may be the token itself")]
    Missing,
    /// The file exists, but cannot be read.
    #[error("could not read {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// Advice about a [`TokenFileError`].
pub const TOKEN_FILE_HINT: &str = "--admin-token, --token and ANDANTE_ADMIN_TOKEN name the file that the token is in: \
                                   `openssl rand -hex 32 > FILE; chmod 600 FILE`";

/// The text of `file`.
///
/// # Errors
/// If it is not there or cannot be read.
pub fn read(file: &Path) -> Result<String, TokenFileError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(text),
        // The text is longer than file names may be, has a NUL, or names a folder below a file: it may be a token.
        Err(_) if !file.exists() => Err(TokenFileError::Missing),
        Err(source) => Err(TokenFileError::Unreadable { file: file.to_owned(), source }),
    }
}

/// Form of `file`'s name that may be shown.
pub fn shown(file: &Path) -> String {
    if file.exists() { file.display().to_string() } else { "a file that is not there".to_owned() }
}

/// Problem with the mode of `file`, if users other than its owner and its group can read it.
pub fn exposed(file: &Path) -> Option<String> {
    let mode = fs::metadata(file).ok()?.permissions().mode();
    (mode & 0o007 != 0).then(|| {
        let mode = mode & 0o777;
        format!("others can read the token in {}: its mode is {mode:o}", file.display())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_token_in_the_place_of_its_file_is_not_shown() {
        let long = "s3cret/".repeat(60);
        for token in ["my-super-secret-token-123", "/my/super/secret-token", &long, "a\0secret"] {
            let error = read(Path::new(token)).unwrap_err();
            assert!(matches!(error, TokenFileError::Missing), "{error:?}");
            assert!(!format!("{error} {error:?} {}", shown(Path::new(token))).contains("secret-token"));
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_exposed() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"0123456789abcdef").unwrap();
        let mode = |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o644);
        assert!(exposed(file.path()).unwrap().contains("its mode is 644"));
        mode(0o640);
        assert_eq!(exposed(file.path()), None);
    }
}
