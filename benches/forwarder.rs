//! The floor of this stack: a forwarder on hyper with a pool of its own and nothing else. Without limits, queue, checks
//! and time-outs, its cost is the cost of hyper, tokio and the kernel. `benches/instructions.py` compares andante with
//! it.
//!
//! Usage: `forwarder LISTEN UPSTREAM`, two addresses.

use std::{
    cell::RefCell,
    env,
    error::Error,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header::VIA, uri};
use http_body::{Body, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::http1::{self as client, SendRequest},
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{LocalSet, spawn_local},
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Sender = SendRequest<Incoming>;

/// The upstream's connections that carry nothing.
struct Pool {
    upstream: String,
    idle: RefCell<Vec<Sender>>,
}

/// An answer's body, whose end gives its connection back.
struct Passing {
    incoming: Incoming,
    lease: Option<(Sender, Rc<Pool>)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        // Run as a bench without arguments: there is nothing to measure in it alone.
        eprintln!("usage: forwarder LISTEN UPSTREAM; benches/instructions.py runs it");
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(serve(listen, upstream)))
}

async fn serve(listen: String, upstream: String) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(listen).await?;
    let pool = Rc::new(Pool { upstream, idle: RefCell::default() });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let pool = pool.clone();
        let service = service_fn(move |request| answer(pool.clone(), request));
        spawn_local(async move {
            let _ = server::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(pool: Rc<Pool>, request: Request<Incoming>) -> Result<Response<Passing>, Box<dyn Error + Send + Sync>> {
    let mut request = request;
    let mut parts = uri::Parts::default();
    parts.path_and_query = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from_parts(parts)?;
    request.headers_mut().append(VIA, HeaderValue::from_static("1.1 forwarder"));
    let mut sender = pool.take().await?;
    let answer = sender.send_request(request).await?;
    let mut answer = answer.map(|incoming| Passing { incoming, lease: Some((sender, pool)) });
    answer.headers_mut().append(VIA, HeaderValue::from_static("1.1 forwarder"));
    Ok(answer)
}

// === impl Pool ===

impl Pool {
    async fn take(&self) -> Result<Sender, Box<dyn Error + Send + Sync>> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            match idle {
                Some(sender) if sender.is_ready() => return Ok(sender),
                Some(_) => {}
                None => return self.dial().await,
            }
        }
    }

    async fn dial(&self) -> Result<Sender, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(&self.upstream).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        spawn_local(connection);
        Ok(sender)
    }
}

// === impl Passing ===

impl Body for Passing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if let Some((sender, pool)) = self.lease.take()
            && sender.is_ready()
        {
            pool.idle.borrow_mut().push(sender);
        }
    }
}
