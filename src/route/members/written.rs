//! A JSON body from members that are written as `options.seed` and `5`.

use super::scanner::is_number;
use core::fmt::Write;

/// An object with its members, in their order.
#[derive(Debug, Default)]
struct Object(Vec<(String, Node)>);

#[derive(Debug)]
enum Node {
    /// A value as it is written in JSON.
    Value(String),
    Object(Object),
}

/// Returns a JSON object with these members, each with its path. A value that is a number, `true`, `false`
/// or `null` is that; any other one is a text. A path that comes twice is a repeated member.
pub fn json_body<'m>(members: impl IntoIterator<Item = (&'m str, &'m str)>) -> String {
    let mut object = Object::default();
    for (path, value) in members {
        object.insert(path, scalar(value));
    }
    let mut text = String::new();
    object.write(&mut text);
    text
}

impl Object {
    /// Adds a value. The depth is that of the path.
    fn insert(&mut self, path: &str, value: String) {
        let Some((name, rest)) = path.split_once('.') else {
            self.0.push((path.to_owned(), Node::Value(value)));
            return;
        };
        let known = self.0.iter_mut().find_map(|(of, node)| match node {
            Node::Object(object) if of == name => Some(object),
            Node::Object(_) | Node::Value(_) => None,
        });
        if let Some(object) = known {
            object.insert(rest, value);
        } else {
            let mut object = Self::default();
            object.insert(rest, value);
            self.0.push((name.to_owned(), Node::Object(object)));
        }
    }

    fn write(&self, text: &mut String) {
        text.push('{');
        for (index, (name, node)) in self.0.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(&quoted(name));
            text.push(':');
            match node {
                Node::Value(value) => text.push_str(value),
                Node::Object(object) => object.write(text),
            }
        }
        text.push('}');
    }
}

fn scalar(value: &str) -> String {
    let is_bare = matches!(value, "true" | "false" | "null") || is_number(value.as_bytes());
    if is_bare { value.to_owned() } else { quoted(value) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            // Writing to a String cannot fail.
            '\0'..=' ' => _ = write!(quoted, "\\u{:04x}", u32::from(character)),
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_become_a_body() {
        let body = json_body([
            ("model", "gpt-4"),
            ("options.seed", "5"),
            ("stream", "true"),
            ("options.stop", "a\"\\\n"),
            ("model", "1.x"),
        ]);
        assert_eq!(
            body,
            r#"{"model":"gpt-4","options":{"seed":5,"stop":"a\"\\\u000a"},"stream":true,"model":"1.x"}"#
        );
        assert_eq!(json_body([]), "{}");
    }
}
