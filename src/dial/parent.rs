//! Asks a parent proxy for a connection: CONNECT (RFC 9110 §9.3.6) and SOCKS5 (RFC 1928, RFC 1929).
//!
//! `hyper-util` is not used. The tunnel of that crate does not report the status, and loses bytes that the upstream
//! sends at once, such as a server's greeting. Its SOCKS5 client accepts a single method of authentication.

use std::{io, net::IpAddr};

use http::StatusCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::policy::{Parent, ParentProtocol};

/// Maximum bytes of a response head to CONNECT, which bounds the memory that a parent can make us use.
const MAX_HEAD: usize = 16 * 1024;

/// Reason why a parent proxy gave no connection. Contains no credentials.
#[derive(Debug, thiserror::Error)]
pub(super) enum ParentRefusal {
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("it wants a user name and a password, and `via` has none")]
    Anonymous,
    #[error("it did not accept the user name and password")]
    Credentials,
    #[error("a user name or password of more than 255 bytes cannot be sent by SOCKS5")]
    LongCredentials,
    #[error("a name of more than 255 bytes cannot be sent by SOCKS5")]
    LongName,
    #[error("it does not answer as an HTTP proxy does")]
    NotHttp,
    #[error("it does not answer as a SOCKS5 proxy does")]
    NotSocks,
    #[error("it answered: {0}")]
    Socks(&'static str),
    #[error("the connection to it broke")]
    Broken(#[from] io::Error),
}

/// Turns `stream` into a tunnel to `host` and `port`. Reads no byte that comes from there.
pub(super) async fn ask_for(
    stream: &mut TcpStream,
    parent: &Parent,
    host: &str,
    port: u16,
) -> Result<(), ParentRefusal> {
    match parent.protocol {
        ParentProtocol::Http => connect(stream, parent, host, port).await,
        ParentProtocol::Socks5 => socks5(stream, parent, host, port).await,
    }
}

async fn connect(stream: &mut TcpStream, parent: &Parent, host: &str, port: u16) -> Result<(), ParentRefusal> {
    let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
    if let Some(authorization) = parent.authorization() {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await?;
    loop {
        let status = status(&head(stream).await?).ok_or(ParentRefusal::NotHttp)?;
        match status.as_u16() {
            // Interim responses may precede the final one (RFC 9110 §15.2).
            100..200 => {}
            200..300 => return Ok(()),
            407 if parent.credentials.is_some() => return Err(ParentRefusal::Credentials),
            407 => return Err(ParentRefusal::Anonymous),
            _ => return Err(ParentRefusal::Status(status)),
        }
    }
}

/// Reads a response head from `stream`. Leaves the bytes after it, which come from the upstream.
async fn head(stream: &mut TcpStream) -> Result<Vec<u8>, ParentRefusal> {
    let (mut head, mut chunk) = (Vec::new(), [0; 2048]);
    loop {
        let there = stream.peek(&mut chunk).await?;
        if there == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let known = head.len();
        head.extend_from_slice(&chunk[..there]);
        let end = head.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        head.truncate(end.unwrap_or(head.len()));
        stream.read_exact(&mut chunk[..head.len() - known]).await?;
        match end {
            Some(_) => return Ok(head),
            // A server of another protocol might never send the empty line that ends a head.
            None if head.len() > MAX_HEAD || !b"HTTP/1.".starts_with(&head[..head.len().min(7)]) => {
                return Err(ParentRefusal::NotHttp);
            }
            None => {}
        }
    }
}

/// Parses the status of a head that begins like `HTTP/1.1 200 …`.
fn status(head: &[u8]) -> Option<StatusCode> {
    let rest = head.strip_prefix(b"HTTP/1.1 ").or_else(|| head.strip_prefix(b"HTTP/1.0 "))?;
    let (code, after) = rest.split_at_checked(3)?;
    // A number of more than three digits is not a status.
    if after.first().is_some_and(|byte| byte.is_ascii_digit()) { None } else { StatusCode::from_bytes(code).ok() }
}

async fn socks5(stream: &mut TcpStream, parent: &Parent, host: &str, port: u16) -> Result<(), ParentRefusal> {
    const NO_LOGIN: u8 = 0;
    const PASSWORD: u8 = 2;
    let greeting: &[u8] = if parent.credentials.is_some() { &[5, 2, NO_LOGIN, PASSWORD] } else { &[5, 1, NO_LOGIN] };
    stream.write_all(greeting).await?;
    match (read::<2>(stream).await?, &parent.credentials) {
        ([5, NO_LOGIN], _) => {}
        ([5, PASSWORD], Some((user, password))) => log_in(stream, user, password).await?,
        ([5, 0xff], Some(_)) => return Err(ParentRefusal::Socks("no way to log in that we know")),
        ([5, 0xff], None) => return Err(ParentRefusal::Anonymous),
        _ => return Err(ParentRefusal::NotSocks),
    }
    let mut request = vec![5, 1, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend_from_slice(&address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend_from_slice(&address.octets());
        }
        Err(_) => {
            request.push(3);
            push_counted(&mut request, host).ok_or(ParentRefusal::LongName)?;
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).await?;
    let kind = match read::<4>(stream).await? {
        [5, 0, _, kind] => kind,
        [5, code, ..] => return Err(ParentRefusal::Socks(reply(code))),
        _ => return Err(ParentRefusal::NotSocks),
    };
    // The address that the parent connects from is read but not used. The bytes after it are the upstream's.
    let length = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(read::<1>(stream).await?[0]),
        _ => return Err(ParentRefusal::NotSocks),
    };
    let mut address = [0; 255 + 2];
    stream.read_exact(&mut address[..length + 2]).await?;
    Ok(())
}

async fn log_in(stream: &mut TcpStream, user: &str, password: &str) -> Result<(), ParentRefusal> {
    let mut request = vec![1];
    push_counted(&mut request, user).ok_or(ParentRefusal::LongCredentials)?;
    push_counted(&mut request, password).ok_or(ParentRefusal::LongCredentials)?;
    stream.write_all(&request).await?;
    match read::<2>(stream).await? {
        [_, 0] => Ok(()),
        _ => Err(ParentRefusal::Credentials),
    }
}

/// Appends a byte with the length of `text`, then `text`. Returns `None` if the length exceeds 255 bytes.
fn push_counted(request: &mut Vec<u8>, text: &str) -> Option<()> {
    request.push(u8::try_from(text.len()).ok()?);
    request.extend_from_slice(text.as_bytes());
    Some(())
}

async fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Describes a reply code of SOCKS5 (RFC 1928 §6).
fn reply(code: u8) -> &'static str {
    match code {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "it knows no CONNECT",
        8 => "it knows no such kind of address",
        _ => "a failure that RFC 1928 does not know",
    }
}
