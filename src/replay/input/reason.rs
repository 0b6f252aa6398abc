//! Why a line cannot be read.

use std::borrow::Cow;

/// In words, for people.
pub(super) type Reason = Cow<'static, str>;

/// Says what is wrong with a JSON line, without the place, which is within the line.
pub(super) fn json_reason(error: &serde_json::Error) -> Reason {
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    if error.is_data() { said.to_owned().into() } else { format!("not JSON: {said}").into() }
}
