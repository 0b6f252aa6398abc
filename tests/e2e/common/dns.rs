//! A DNS server that a test changes while it runs.

use super::PATIENCE;
use hickory_resolver::proto::{
    op::{Message, ResponseCode},
    rr::{RData, Record, RecordType},
};
use std::{
    net::{SocketAddr, UdpSocket},
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
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    pub(crate) fn start(records: Records) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        socket.set_read_timeout(Some(PATIENCE * 3)).expect("set");
        let address = socket.local_addr().expect("an address");
        let records = Arc::new(Mutex::new(records));
        let questions = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let zone = Arc::clone(&records);
        let counter = Arc::clone(&questions);
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                if is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                counter.fetch_add(1, Ordering::SeqCst);
                let answer = answer(&buffer[..length], &zone.lock().expect("no panic"));
                socket.send_to(&answer, from).expect("sent");
            }
        });
        Self { address, records, questions, stop, thread: Some(thread) }
    }

    /// Answers so from now on.
    pub(crate) fn set(&self, records: Records) {
        *self.records.lock().expect("no panic") = records;
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
        self.thread.take().map(JoinHandle::join);
    }
}

/// Answers a question. Records follow each other: an alias belongs to the name asked for, and the
/// addresses behind it to the alias.
fn answer(question: &[u8], records: &Records) -> Vec<u8> {
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
    answer.to_vec().expect("it is encoded")
}
