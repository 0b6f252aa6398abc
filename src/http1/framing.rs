//! The end of a message's body, and the further use of its connection.
//!
//! RFC 9112, section 6.3, for what is received, and sections 6.1 and 6.2 for what is written. A
//! message that two recipients could frame in different ways is rejected: behind a proxy, such a
//! request becomes two.

use super::{
    field_set::{FieldKind, is_about_duration},
    fields::Field,
};
use http::{Method, StatusCode, Version};

/// The most options that `Connection` may list. Each is compared with each field's name when the
/// head is written, so their number bounds that work. More than a few are no client's.
pub const MAX_CONNECTION_OPTIONS: usize = 64;

/// The longest body that can be declared, 2⁶³−1 bytes: servers that count in signed numbers read
/// more in another way.
pub const MAX_CONTENT_LENGTH: u64 = i64::MAX.unsigned_abs();

/// The end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    None,
    /// After as many bytes.
    Exactly(u64),
    /// By the last chunk.
    Chunked,
    /// With the connection. Only responses end so.
    UntilClose,
}

/// The reason why the end of a body is uncertain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// RFC 9112, 6.3, item 5: it is not one decimal number.
    #[error("Content-Length is not a number, or too large")]
    ContentLength,
    /// RFC 9112, 6.3, item 5.
    #[error("Content-Length is given several times with different values")]
    ContentLengthsDiffer,
    /// RFC 9112, 6.1: "ought to be handled as an error".
    #[error("Content-Length and Transfer-Encoding are both given")]
    ContentLengthWithTransferEncoding,
    /// RFC 9112, 6.1: a sender of HTTP/1.0 does not know it.
    #[error("Transfer-Encoding is given in an HTTP/1.0 message")]
    TransferEncodingInHttp10,
    /// RFC 9112, 6.3, item 4: chunked is not the last coding, or there are several.
    #[error("Transfer-Encoding does not end with chunked, once")]
    TransferEncoding,
    /// RFC 9112, 6.1: another coding below chunked.
    #[error("the only transfer coding served is chunked")]
    UnknownTransferCoding,
    /// See [`MAX_CONNECTION_OPTIONS`].
    #[error("Connection has too many options")]
    TooManyConnectionOptions,
}

/// The kind of a request, as far as the framing of its response depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// The response has no body.
    Head,
    /// The connection becomes a tunnel if the response is a success.
    Connect,
    /// Any other method.
    Other,
}

impl RequestKind {
    /// Returns the kind of a request with this method.
    pub fn of(method: &[u8]) -> Self {
        match method {
            b"HEAD" => Self::Head,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

/// The framing of a message by its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// The end of the body.
    pub body: BodyLength,
    /// The value of `Content-Length`. A response to HEAD and a 304 have it without a body.
    pub declared: Option<u64>,
    /// True if another message can follow on the connection once the body has ended.
    pub keeps_alive: bool,
}

impl Framing {
    /// The framing of no message.
    pub const NONE: Self = Self { body: BodyLength::None, declared: None, keeps_alive: false };
}

/// Returns the framing of a request with these fields.
///
/// # Errors
///
/// Two servers could read the message in different ways.
pub(super) fn of_request<'a>(
    fields: impl Iterator<Item = Field<'a>>,
    version: Version,
) -> Result<Framing, FramingError> {
    let facts = Facts::of(fields, version, Lengths::Lines)?;
    let body = match (facts.is_chunked, facts.length) {
        (true, _) => BodyLength::Chunked,
        (false, Some(length)) => BodyLength::Exactly(length),
        (false, None) => BodyLength::None,
    };
    Ok(facts.framing(body, version))
}

/// Returns the framing of a response with these fields to a request of kind `request`.
///
/// A 101, and a successful response to CONNECT, have no body: the connection becomes a tunnel.
///
/// # Errors
///
/// Two clients could read the message in different ways.
pub(super) fn of_response<'a>(
    fields: impl Iterator<Item = Field<'a>>,
    version: Version,
    status: StatusCode,
    request: RequestKind,
) -> Result<Framing, FramingError> {
    let facts = Facts::of(fields, version, Lengths::LinesAndLists)?;
    let body = match (facts.is_chunked, facts.length) {
        _ if !has_body(status, request) => BodyLength::None,
        (true, _) => BodyLength::Chunked,
        (false, Some(length)) => BodyLength::Exactly(length),
        (false, None) => BodyLength::UntilClose,
    };
    Ok(facts.framing(body, version))
}

/// Returns whether a response with this status has a body (RFC 9112, 6.3, items 1 and 2).
pub fn has_body(status: StatusCode, request: RequestKind) -> bool {
    let is_bare = status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    !is_bare
        && match request {
            RequestKind::Head => false,
            RequestKind::Connect => !status.is_success(),
            RequestKind::Other => true,
        }
}

/// Where equal lengths may be repeated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    Lines,
    LinesAndLists,
}

/// The options of `Connection`.
#[derive(Default)]
struct ConnectionField {
    close: bool,
    keep_alive: bool,
    count: usize,
}

/// The content of the fields that frame a message.
#[derive(Default)]
struct Facts {
    length: Option<u64>,
    is_chunked: bool,
    connection: ConnectionField,
}

impl Facts {
    fn of<'a>(
        fields: impl Iterator<Item = Field<'a>>,
        version: Version,
        lengths: Lengths,
    ) -> Result<Self, FramingError> {
        let mut facts = Self::default();
        let mut coding = Coding::default();
        let mut length = Ok(None);

        for field in fields {
            match field.kind {
                FieldKind::ContentLength => {
                    length = length.and_then(|known| add_length(known, field.value, lengths));
                }
                FieldKind::TransferEncoding => coding.add(field.value),
                FieldKind::Connection => facts.connection.add(field.value)?,
                FieldKind::Host
                | FieldKind::ContentType
                | FieldKind::Upgrade
                | FieldKind::Te
                | FieldKind::OtherHop
                | FieldKind::Expect
                | FieldKind::Cookie
                | FieldKind::Forwarded
                | FieldKind::Trailer
                | FieldKind::UnderscoreFraming
                | FieldKind::EndToEnd => {}
            }
        }

        facts.is_chunked = coding.is_chunked(version)?;
        if facts.is_chunked && length != Ok(None) {
            return Err(FramingError::ContentLengthWithTransferEncoding);
        }
        facts.length = length?;
        Ok(facts)
    }

    fn framing(self, body: BodyLength, version: Version) -> Framing {
        let Self { length: declared, connection, .. } = self;
        let is_asked = version == Version::HTTP_11 || connection.keep_alive;
        let keeps_alive = is_asked && !connection.close && body != BodyLength::UntilClose;
        Framing { body, declared, keeps_alive }
    }
}

/// Returns the length that a line of `Content-Length` gives, which must be the known one.
fn add_length(
    mut known: Option<u64>,
    value: &[u8],
    lengths: Lengths,
) -> Result<Option<u64>, FramingError> {
    let is_list = lengths == Lengths::LinesAndLists && value.contains(&b',');
    for number in value.split(|byte| is_list && *byte == b',') {
        let length = parse_length(if is_list { trim(number) } else { number })?;
        if known.is_some_and(|known| known != length) {
            return Err(FramingError::ContentLengthsDiffer);
        }
        known = Some(length);
    }
    Ok(known)
}

/// Parses a length: digits and nothing else (RFC 9110, 8.6).
fn parse_length(digits: &[u8]) -> Result<u64, FramingError> {
    if digits.is_empty() {
        return Err(FramingError::ContentLength);
    }
    let mut length = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(FramingError::ContentLength);
        }
        length = length
            .checked_mul(10)
            .and_then(|length| length.checked_add(u64::from(digit - b'0')))
            .filter(|length| *length <= MAX_CONTENT_LENGTH)
            .ok_or(FramingError::ContentLength)?;
    }
    Ok(length)
}

/// The transfer codings of a message, over all lines of the field.
#[derive(Default)]
struct Coding {
    count: usize,
    chunked: usize,
    is_last_chunked: bool,
    has_empty: bool,
}

impl Coding {
    fn add(&mut self, value: &[u8]) {
        for coding in value.split(|byte| *byte == b',').map(trim) {
            self.is_last_chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.chunked += usize::from(self.is_last_chunked);
            self.has_empty |= coding.is_empty();
            self.count += 1;
        }
    }

    /// Returns whether the body is chunked: it may have that coding once, and no other.
    fn is_chunked(&self, version: Version) -> Result<bool, FramingError> {
        if self.count == 0 {
            Ok(false)
        } else if version != Version::HTTP_11 {
            Err(FramingError::TransferEncodingInHttp10)
        } else if self.chunked != 1 || !self.is_last_chunked || self.has_empty {
            Err(FramingError::TransferEncoding)
        } else if self.count > 1 {
            Err(FramingError::UnknownTransferCoding)
        } else {
            Ok(true)
        }
    }
}

impl ConnectionField {
    fn add(&mut self, value: &[u8]) -> Result<(), FramingError> {
        if is_about_duration(value) {
            return self.add_option(value);
        }
        let mut options = value.split(|byte| *byte == b',').map(trim);
        options.try_for_each(|option| self.add_option(option))
    }

    fn add_option(&mut self, option: &[u8]) -> Result<(), FramingError> {
        self.count += 1;
        if self.count > MAX_CONNECTION_OPTIONS {
            return Err(FramingError::TooManyConnectionOptions);
        }
        let is = |known: &str| option.eq_ignore_ascii_case(known.as_bytes());
        match option.len() {
            5 if is("close") => self.close = true,
            10 if is("keep-alive") => self.keep_alive = true,
            // Other options name fields that the writer leaves out.
            _ => {}
        }
        Ok(())
    }
}

/// Removes the blanks that may stand around an element of a list (RFC 9110, 5.6.3).
pub(super) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The field that says where the body ends in what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthField {
    /// Neither of them.
    None,
    /// `Content-Length`.
    ContentLength(u64),
    /// `Transfer-Encoding: chunked`: if a body follows, it is written in chunks.
    Chunked,
}

/// Returns the field for a request with this method whose body ends by `body`.
///
/// A request without a body says so where its method expects one (RFC 9110, 8.6).
pub fn for_request(method: &Method, body: BodyLength) -> LengthField {
    match body {
        BodyLength::Exactly(length) => LengthField::ContentLength(length),
        // No request ends with its connection: its server could not respond.
        BodyLength::Chunked | BodyLength::UntilClose => LengthField::Chunked,
        BodyLength::None => {
            let expects_body = matches!(*method, Method::POST | Method::PUT | Method::PATCH);
            if expects_body { LengthField::ContentLength(0) } else { LengthField::None }
        }
    }
}

/// Returns the field for a response to a request of kind `request`, for a client that speaks
/// `version`. `framing` is that of the response as it came, or as it would have come.
///
/// With [`LengthField::None`] a body ends with the connection, which must be closed then.
pub fn for_response(
    status: StatusCode,
    request: RequestKind,
    version: Version,
    framing: &Framing,
) -> LengthField {
    let is_tunnel = request == RequestKind::Connect && status.is_success();
    if status.is_informational() || status == StatusCode::NO_CONTENT || is_tunnel {
        return LengthField::None;
    }
    if !has_body(status, request) {
        return framing.declared.map_or(LengthField::None, LengthField::ContentLength);
    }
    match framing.body {
        BodyLength::None => LengthField::ContentLength(0),
        BodyLength::Exactly(length) => LengthField::ContentLength(length),
        BodyLength::Chunked | BodyLength::UntilClose if version == Version::HTTP_11 => {
            LengthField::Chunked
        }
        BodyLength::Chunked | BodyLength::UntilClose => LengthField::None,
    }
}
