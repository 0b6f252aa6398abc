//! The HTTP/1.1 codec: tables by the sections of the RFCs, laws on random bytes, and hyper as the
//! judge of what is read.

#[path = "http1/allocations.rs"]
mod allocations;
#[path = "http1/chunks.rs"]
mod chunks;
#[path = "http1/framing.rs"]
mod framing;
#[path = "http1/fuzz.rs"]
mod fuzz;
#[path = "http1/generate.rs"]
mod generate;
#[path = "http1/heads.rs"]
mod heads;
#[path = "http1/hyper.rs"]
mod hyper_reads;
#[path = "http1/list.rs"]
mod list;
#[path = "http1/pieces.rs"]
mod pieces;
#[path = "http1/reader.rs"]
mod reader;
#[path = "http1/targets.rs"]
mod targets;
#[path = "http1/write.rs"]
mod write;
