//! Sockets that a service manager has opened for us (sd_listen_fds(3)). The sockets stay open while andante
//! restarts: clients that connect meanwhile wait instead of being refused.

use std::{env, io, net::TcpListener};

use listenfd::ListenFd;
use rustix::net::sockopt;

/// Listening sockets that existed before andante started.
#[derive(Debug, Default)]
pub struct Given {
    /// Sockets for workers; if there are any, they replace all configured addresses.
    pub workers: Vec<TcpListener>,
    /// Socket for the admin pages, instead of the configured address: the one called `admin`
    /// (`FileDescriptorName=`).
    pub admin: Option<TcpListener>,
}

// === impl Given ===

impl Given {
    /// Takes the sockets of an earlier process, where none were given.
    pub fn take_over(&mut self, workers: &mut Vec<TcpListener>, admin: Option<TcpListener>) {
        if self.workers.is_empty() {
            self.workers.append(workers);
        }
        if self.admin.is_none() {
            self.admin = admin;
        }
    }

    /// Takes the sockets that the environment (`LISTEN_FDS`, `LISTEN_PID`, `LISTEN_FDNAMES`) passes on; usually none.
    ///
    /// # Errors
    /// If one of them is not a listening TCP socket, or two are called `admin`.
    pub fn take() -> io::Result<Self> {
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut sockets = ListenFd::from_env();
        let mut given = Self::default();
        for index in 0..sockets.len() {
            let is_admin = names.next() == Some("admin");
            let Some(listener) = sockets.take_tcp_listener(index)? else { continue };
            if !sockopt::socket_acceptconn(&listener)? {
                return Err(invalid(format!("socket {index} does not listen")));
            }
            // tokio needs sockets that never block.
            listener.set_nonblocking(true)?;
            super::probe_silent_clients(&listener)?;
            if !is_admin {
                given.workers.push(listener);
            } else if given.admin.replace(listener).is_some() {
                return Err(invalid("two sockets are called \"admin\"".to_owned()));
            }
        }
        Ok(given)
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
