//! A plain reader of HTTP/1.1 messages, which shares no code with the gateway's.

use tokio::io::{AsyncRead, AsyncReadExt};

/// A message's first line and fields.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) first: String,
    /// Names in lower case.
    pub(super) fields: Vec<(String, String)>,
}

/// A message's body as far as it came.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    /// Whether its end came.
    pub(super) is_whole: bool,
}

impl Head {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().find(|(known, _)| known == name);
        field.map(|(_, value)| value.as_str())
    }

    pub(super) fn has(&self, name: &str, value: &str) -> bool {
        self.get(name).is_some_and(|got| got.eq_ignore_ascii_case(value))
    }

    /// Reads a head. `None`: the stream ended or broke off.
    pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Self> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            bytes.push(stream.read_u8().await.ok()?);
        }
        let text = String::from_utf8(bytes).ok()?;
        let mut lines = text.split("\r\n");
        let first = lines.next()?.to_owned();
        let fields = lines.take_while(|line| !line.is_empty()).map(|line| {
            let (name, value) = line.split_once(':').expect("a field");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        });
        Some(Self { first, fields: fields.collect() })
    }
}

impl Content {
    /// Reads the body behind `head`; `has_none` says that there cannot be one, `until_end` that it
    /// may be all that comes. `on_bytes` is called between parts, to take its time.
    pub(super) async fn read<S, F>(
        stream: &mut S,
        head: &Head,
        (has_none, until_end): (bool, bool),
        on_bytes: impl Fn(usize) -> F,
    ) -> Self
    where
        S: AsyncRead + Unpin,
        F: Future<Output = ()>,
    {
        let mut content = Self::default();
        if has_none {
            content.is_whole = true;
        } else if head.has("transfer-encoding", "chunked") {
            content.is_whole = content.read_chunks(stream, on_bytes).await.is_some();
        } else if let Some(length) = head.get("content-length") {
            let length = length.parse().expect("a length");
            content.is_whole = content.read_some(stream, length, &on_bytes).await.is_some();
        } else if until_end {
            while content.read_some(stream, 1, &on_bytes).await.is_some() {}
            content.is_whole = true;
        } else {
            content.is_whole = true;
        }
        content
    }

    async fn read_some<S, F>(
        &mut self,
        stream: &mut S,
        mut length: usize,
        on_bytes: &impl Fn(usize) -> F,
    ) -> Option<()>
    where
        S: AsyncRead + Unpin,
        F: Future<Output = ()>,
    {
        while length > 0 {
            let mut block = vec![0; length.min(512)];
            let read = stream.read(&mut block).await.ok().filter(|read| *read > 0)?;
            self.bytes.extend_from_slice(&block[..read]);
            length -= read;
            on_bytes(read).await;
        }
        Some(())
    }

    async fn read_chunks<S, F>(
        &mut self,
        stream: &mut S,
        on_bytes: impl Fn(usize) -> F,
    ) -> Option<()>
    where
        S: AsyncRead + Unpin,
        F: Future<Output = ()>,
    {
        loop {
            let line = read_line(stream).await?;
            let length = usize::from_str_radix(&line, 16).expect("a chunk's size");
            if length == 0 {
                while !read_line(stream).await?.is_empty() {}
                return Some(());
            }
            self.read_some(stream, length, &on_bytes).await?;
            assert_eq!(read_line(stream).await?, "", "a chunk ends with a line's end");
        }
    }
}

async fn read_line(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await.ok()?);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).ok()
}

/// What a body of request or answer `id` has at `offset`.
pub(super) fn pattern(id: u64, offset: usize) -> u8 {
    let mixed = id.wrapping_mul(0x9e37_79b9) ^ (offset as u64).wrapping_mul(31);
    b'a' + u8::try_from(mixed % 26).expect("below 26")
}

/// The first `length` bytes of a body.
pub(super) fn body(id: u64, length: usize) -> Vec<u8> {
    (0..length).map(|offset| pattern(id, offset)).collect()
}

/// Whether `bytes` are the beginning of a body.
pub(super) fn is_of(id: u64, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(offset, byte)| *byte == pattern(id, offset))
}
