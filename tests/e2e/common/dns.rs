//! A DNS server that a test changes while it runs.

use super::{PATIENCE, eventually};
use hickory_resolver::proto::{
    op::{Message, Query, ResponseCode},
    rr::{RData, Record, RecordType},
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
};

/// A zone of one name: its records with their times to live in seconds. `None`: there is no such
/// name.
pub(crate) type Records = Option<Vec<(u32, RData)>>;

/// Answers over UDP until it is dropped.
pub(crate) struct DnsServer {
    pub address: SocketAddr,
    records: Arc<Mutex<Records>>,
    questions: Arc<AtomicUsize>,
    /// The kind of question that it does not answer.
    ignored: Arc<Mutex<Option<RecordType>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    pub(crate) fn start(records: Records) -> Self {
        Self::serve(UdpSocket::bind("127.0.0.1:0").expect("bound"), records, false)
    }

    fn serve(socket: UdpSocket, records: Records, truncates: bool) -> Self {
        socket.set_read_timeout(Some(PATIENCE * 3)).expect("set");
        let address = socket.local_addr().expect("an address");
        let records = Arc::new(Mutex::new(records));
        let questions = Arc::new(AtomicUsize::new(0));
        let ignored = Arc::<Mutex<Option<RecordType>>>::default();
        let stop = Arc::new(AtomicBool::new(false));
        let zone = Arc::clone(&records);
        let counter = Arc::clone(&questions);
        let dropped = Arc::clone(&ignored);
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                if is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                let mut answer = answer(&buffer[..length], &zone.lock().expect("no panic"));
                let kind = answer.queries.first().map(Query::query_type);
                if kind == *dropped.lock().expect("no panic") {
                    continue;
                }
                if truncates {
                    answer.metadata.truncation = true;
                    answer.answers.clear();
                }
                socket.send_to(&encoded(&answer), from).expect("sent");
            }
        });
        Self { address, records, questions, ignored, stop, thread: Some(thread) }
    }

    /// The same, with answers over UDP that are all truncated, and whole ones over TCP. Returns how
    /// many questions came over TCP, too.
    pub(crate) fn truncating(records: Records) -> (Self, Arc<AtomicUsize>) {
        // A port that is free for UDP may be taken for TCP.
        let (socket, listener) = eventually("a port is free for both", || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
            let listener = TcpListener::bind(socket.local_addr().expect("an address")).ok()?;
            Some((socket, listener))
        });
        let server = Self::serve(socket, records, true);
        let zone = Arc::clone(&server.records);
        let is_stopped = Arc::clone(&server.stop);
        let over_tcp = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&over_tcp);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let zone = Arc::clone(&zone);
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || answer_stream(&stream.ok()?, &zone, &counter));
            }
        });
        (server, over_tcp)
    }

    /// Answers so from now on.
    pub(crate) fn set(&self, records: Records) {
        *self.records.lock().expect("no panic") = records;
    }

    /// Answers no question of this kind from now on.
    pub(crate) fn ignore(&self, kind: RecordType) {
        *self.ignored.lock().expect("no panic") = Some(kind);
    }

    /// How many questions came so far.
    pub(crate) fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let wake = UdpSocket::bind("127.0.0.1:0").expect("bound");
        wake.send_to(&[0], self.address).expect("sent");
        // Only one that truncates listens there.
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

/// Answers the questions of a connection, each of which has its length before it.
fn answer_stream(
    mut stream: &TcpStream,
    records: &Mutex<Records>,
    counter: &AtomicUsize,
) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE * 3)).expect("set");
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length).ok()?;
        let mut question = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut question).ok()?;
        counter.fetch_add(1, Ordering::SeqCst);
        let answer = encoded(&answer(&question, &records.lock().expect("no panic")));
        let length = u16::try_from(answer.len()).expect("short").to_be_bytes();
        stream.write_all(&[&length[..], &answer].concat()).ok()?;
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    message.to_vec().expect("it is encoded")
}

/// Answers a question. Records follow each other: an alias belongs to the name asked for, and the
/// addresses behind it to the alias.
fn answer(question: &[u8], records: &Records) -> Message {
    let question = Message::from_vec(question).expect("a question");
    let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
    answer.metadata.recursion_desired = true;
    answer.metadata.recursion_available = true;
    let query = question.queries[0].clone();
    let mut name = query.name().clone();
    match records {
        None => answer.metadata.response_code = ResponseCode::NXDomain,
        Some(records) => {
            for (ttl, data) in records {
                let is_alias = data.record_type() == RecordType::CNAME;
                if is_alias || data.record_type() == query.query_type() {
                    answer.add_answer(Record::from_rdata(name.clone(), *ttl, data.clone()));
                }
                if let RData::CNAME(alias) = data {
                    name = alias.0.clone();
                }
            }
        }
    }
    answer.add_query(query);
    answer
}
