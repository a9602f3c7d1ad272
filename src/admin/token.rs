//! The token that changes need.

use std::fmt;

/// The token.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

/// Reason why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// The text is too short.
    #[error("it is too short: it has {0} characters, and needs {LEAST} at least")]
    Short(usize),
    /// The text has a character that no token has (RFC 6750 §2.1).
    #[error("it has a space, or another character that no token has")]
    Character,
}

/// Least length: shorter tokens can be guessed.
const LEAST: usize = 16;

// === impl Token ===

impl Token {
    /// Parses the token in `text`.
    pub fn new(text: &str) -> Result<Self, BadToken> {
        let text = text.trim();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadToken::Character);
        }
        if text.len() < LEAST {
            return Err(BadToken::Short(text.len()));
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// Returns whether this value of `Authorization` has the token (RFC 6750 §2.1). Takes the same time for any
    /// wrong token of its length.
    pub(super) fn is_said_by(&self, value: &[u8]) -> bool {
        let Some((scheme, said)) = value.split_at_checked(7) else { return false };
        let differs = said.iter().zip(&self.0).fold(0, |differs, (said, own)| differs | (said ^ own));
        scheme.eq_ignore_ascii_case(b"bearer ") && said.len() == self.0.len() && differs == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_token_is_the_token() {
        let token = Token::new(" 0123456789abcdef\n").unwrap();
        assert!(token.is_said_by(b"Bearer 0123456789abcdef") && token.is_said_by(b"bearer 0123456789abcdef"));
        for wrong in ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdeg", "0123456789abcdef"]
        {
            assert!(!token.is_said_by(wrong.as_bytes()), "{wrong}");
        }
        assert!(!token.is_said_by(b"Bearer 0123456789abcdef0") && !token.is_said_by(b"Basic  0123456789abcdef"));
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn what_can_be_guessed_is_no_token() {
        for (text, wrong) in [
            ("", BadToken::Short(0)),
            ("short\n", BadToken::Short(5)),
            ("0123456789 abcdef", BadToken::Character),
            ("0123456789abcde", BadToken::Short(15)),
        ] {
            assert_eq!(Token::new(text).unwrap_err(), wrong, "{text}");
        }
        assert_eq!(BadToken::Short(9).to_string(), "it is too short: it has 9 characters, and needs 16 at least");
    }
}
