//! The ports that these tests listen on: nobody else takes them.

use crate::port::free_port;
use flowgate::proxy::bind;
use socket2::{Domain, Socket, Type};
use std::{
    collections::HashSet,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
};

#[test]
fn a_free_port_is_kept_from_others_before_between_and_after_its_servers() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    for _ in 0..3 {
        let error = TcpStream::connect(address).expect_err("no listener");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        // As the kernel binds who asks for any port.
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let taken = other.bind(&address.into()).expect_err("it is kept");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let (_, sockets) = bind(address, 2, false).expect("a server that may");
        TcpStream::connect(address).expect("it listens");
        drop(sockets);
    }
}

#[test]
fn gateways_that_start_together_on_any_port_get_one_each() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let starts = [(); 4].map(|()| {
        thread::spawn(move || [(); 100].map(|()| bind(any, 2, false).expect("a free port")))
    });
    let all: Vec<(SocketAddr, Vec<TcpListener>)> =
        starts.into_iter().flat_map(|start| start.join().expect("no panic")).collect();
    let distinct: HashSet<SocketAddr> = all.iter().map(|(address, _)| *address).collect();
    assert_eq!(distinct.len(), all.len());
    for (address, sockets) in &all {
        assert!(sockets.iter().all(|socket| socket.local_addr().is_ok_and(|at| at == *address)));
    }
}
