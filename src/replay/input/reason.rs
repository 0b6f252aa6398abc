//! Why a line cannot be read.

use std::borrow::Cow;

pub(super) type Reason = Cow<'static, str>;

/// Describes an error of a JSON line, without its position in the line.
pub(super) fn json_reason(error: &serde_json::Error) -> Reason {
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    if error.is_data() { said.to_owned().into() } else { format!("not JSON: {said}").into() }
}
