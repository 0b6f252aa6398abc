//! Keys as people read them.

/// Returns the text of a key in words: `client_ip/64`, by which IPv6 clients of a network count as
/// one, becomes `client_ip (IPv6: /64)`.
pub fn key_words(key: &str) -> String {
    key.split(',').map(part_words).collect::<Vec<_>>().join(", ")
}

fn part_words(part: &str) -> String {
    let Some(prefixes) = part.strip_prefix("client_ip/") else { return part.to_owned() };
    match prefixes.split_once('/') {
        Some((v6, v4)) => format!("client_ip (IPv4: /{v4}, IPv6: /{v6})"),
        None => format!("client_ip (IPv6: /{prefixes})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{KeyPart, KeySpec};

    #[test]
    fn the_prefix_of_addresses_names_its_version() {
        let words = |v6_prefix, v4_prefix| {
            let address = KeyPart::ClientIp { v6_prefix, v4_prefix };
            let user = KeyPart::User;
            key_words(&KeySpec::new(vec![user, address]).unwrap().to_string())
        };
        assert_eq!(words(64, 32), "user, client_ip (IPv6: /64)");
        assert_eq!(words(56, 24), "user, client_ip (IPv4: /24, IPv6: /56)");
        assert_eq!(key_words("header:x-tenant"), "header:x-tenant");
    }
}
