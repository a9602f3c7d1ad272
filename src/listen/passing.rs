//! Sockets that go from one process to another over a Unix socket (unix(7), SCM_RIGHTS).

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    net::TcpListener,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// The number of sockets that one message may carry.
const MAX_SOCKETS: usize = 64;
/// The length of one message in bytes.
const MAX_MESSAGE: usize = 4096;

/// Sends `text` over `stream`, and `sockets` with it.
///
/// # Errors
/// What the system says; `InvalidInput` for more than 64 sockets.
pub fn send(stream: impl AsFd, text: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    if sockets.len() > MAX_SOCKETS {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("more than {MAX_SOCKETS} sockets to pass on")));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(sockets));
    let sent = sendmsg(stream, &[IoSlice::new(text)], &mut ancillary, SendFlags::empty())?;
    if sent == text.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one message from `stream`: its text and its listening sockets.
///
/// # Errors
/// What the system says; `UnexpectedEof` if the stream has ended.
pub fn receive(stream: impl AsFd) -> io::Result<(Vec<u8>, Vec<TcpListener>)> {
    let mut text = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    text.truncate(received.bytes);
    let sockets = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    let sockets: Vec<OwnedFd> = sockets.flatten().collect();
    Ok((text, sockets.into_iter().map(TcpListener::from).collect()))
}
