//! Methods in the configuration.

use super::ParseError;
use http::Method;

/// Reads a method. Registered methods are upper-case, so lower-case letters are an error.
///
/// # Errors
///
/// An empty text, lower-case letters, or characters that no method has.
pub fn parse(text: &str) -> Result<Method, ParseError> {
    let upper = text.to_ascii_uppercase();
    match Method::from_bytes(upper.as_bytes()) {
        Ok(method) if upper == text => Ok(method),
        Ok(method) => Err(ParseError::new(
            format!("`{text}` is not a method: methods are upper-case"),
            format!("write `{method}`"),
        )),
        Err(_) => Err(ParseError::new(
            format!("`{}` is not a method", text.escape_debug()),
            "one word, such as `GET` or `POST`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_upper_case_tokens() {
        assert_eq!(parse("POST").unwrap(), Method::POST);
        assert_eq!(parse("PURGE").unwrap().as_str(), "PURGE");
        assert_eq!(parse("post").unwrap_err().help, "write `POST`");
        for text in ["", "GET,POST", "G T", "GÉT"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
