use super::*;
use crate::{
    clock::Clock,
    config::Timeouts,
    memory::{Holder, Memory},
};

fn body(memory: usize) -> Arc<SharedBody> {
    SharedBody::new(SizeHint::new(), Arc::new(SharedMemory::new(memory)), charge())
}

/// A charge that always fits.
fn charge() -> Charge {
    Memory::new(1 << 40, Clock::start()).charge(Holder::Cache)
}

fn join(body: &Arc<SharedBody>) -> Option<SharedReader> {
    let clock = Clock::start();
    body.reader(Arc::new(Progress::new(clock, Arc::new(Timeouts::default()), clock.now())), ())
}

fn read(reader: &mut SharedReader) -> Option<Result<usize, String>> {
    match reader.poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => None,
        Poll::Ready(None) => Some(Ok(0)),
        Poll::Ready(Some(frame)) => {
            Some(frame.map(|frame| frame.data_ref().map_or(0, Bytes::len)).map_err(|error| error.to_string()))
        }
    }
}

fn has_room(body: &SharedBody) -> bool {
    body.poll_room(&Context::from_waker(Waker::noop())).is_ready()
}

fn push(body: &SharedBody, bytes: usize) {
    assert!(body.push(Frame::data(vec![0; bytes].into())));
}

#[tokio::test]
async fn whoever_joins_late_reads_from_the_beginning() {
    let body = body(usize::MAX);
    let mut early = join(&body).unwrap();
    push(&body, 3);
    assert_eq!((read(&mut early), read(&mut early)), (Some(Ok(3)), None));
    let mut late = join(&body).unwrap();
    push(&body, 5);
    body.finish(BodyEnd::Complete);
    assert_eq!([read(&mut late), read(&mut late), read(&mut late)], [Some(Ok(3)), Some(Ok(5)), Some(Ok(0))]);
    assert_eq!([read(&mut early), read(&mut early)], [Some(Ok(5)), Some(Ok(0))]);
}

#[tokio::test]
async fn a_large_body_is_kept_no_further_than_its_bound_and_nobody_joins_it_then() {
    let body = body(usize::MAX);
    let mut reader = join(&body).unwrap();
    while has_room(&body) {
        push(&body, 64 * 1024);
    }
    let kept = body.state.lock().kept;
    assert!((MOST..MOST + 128 * 1024).contains(&kept), "{kept}");
    assert!(join(&body).is_some(), "all of it is still here");
    read(&mut reader);
    assert!(has_room(&body));
    assert!(join(&body).is_none());
}

#[tokio::test]
async fn a_reader_that_holds_up_another_is_cut_and_one_that_reads_alone_is_not() {
    let body = body(usize::MAX);
    let mut slow = join(&body).unwrap();
    while has_room(&body) {
        push(&body, 64 * 1024);
    }
    body.cut_the_slowest();
    assert!(matches!(read(&mut slow), Some(Ok(_))), "nobody waits for it but the API");
    let mut slowest = join(&body).unwrap();
    while read(&mut slow).is_some() {}
    assert!(!has_room(&body));
    body.cut_the_slowest();
    assert!(matches!(read(&mut slowest), Some(Err(_))));
    assert!(has_room(&body));
}

#[tokio::test]
async fn when_memory_is_short_each_body_has_less_and_all_of_it_is_given_back() {
    let memory = Arc::new(SharedMemory::new(1));
    let body = SharedBody::new(SizeHint::new(), memory.clone(), charge());
    while has_room(&body) {
        push(&body, 1024);
    }
    assert!(memory.used.load(Ordering::Relaxed) < LEAST + 2048);
    drop(body);
    assert_eq!(memory.used.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_body_that_broke_off_says_so_to_all() {
    let body = body(usize::MAX);
    let mut readers = [join(&body).unwrap(), join(&body).unwrap()];
    push(&body, 3);
    body.finish(BodyEnd::Broken("reset".into()));
    for reader in &mut readers {
        assert_eq!(read(reader), Some(Ok(3)));
        assert_eq!(read(reader), Some(Err("reset".into())));
    }
}

#[tokio::test]
async fn nothing_is_forgotten_before_all_have_begun_that_wait_for_it() {
    let body = body(usize::MAX);
    body.expect(2);
    let mut quick = join(&body).unwrap();
    while has_room(&body) {
        push(&body, 64 * 1024);
    }
    while read(&mut quick).is_some() {}
    assert!(!has_room(&body), "the other one has not begun");
    let mut slow = join(&body).unwrap();
    assert!(!has_room(&body), "and has read nothing");
    read(&mut slow);
    assert!(has_room(&body) && join(&body).is_none());
}

#[tokio::test]
async fn whoever_does_not_begin_is_not_waited_for_for_ever() {
    let body = body(usize::MAX);
    body.expect(2);
    let mut reader = join(&body).unwrap();
    while has_room(&body) {
        push(&body, 64 * 1024);
    }
    while read(&mut reader).is_some() {}
    body.cut_the_slowest();
    assert!(has_room(&body));
}

#[tokio::test]
async fn a_reader_that_was_cut_can_still_be_asked_how_much_is_left() {
    let body = body(usize::MAX);
    let (slow, mut fast) = (join(&body).unwrap(), join(&body).unwrap());
    while has_room(&body) {
        push(&body, 64 * 1024);
        read(&mut fast);
    }
    body.cut_the_slowest();
    assert!(has_room(&body), "what the slow one has not read is gone");
    assert_eq!(slow.size_hint().exact(), None);
    assert!(!slow.is_end_stream());
}

#[test]
fn a_piece_that_the_account_has_no_room_for_is_dropped_and_what_is_kept_is_charged() {
    let account = Memory::new(1 << 40, Clock::start());
    let charge = account.charge(Holder::Cache);
    let body = SharedBody::new(SizeHint::new(), Arc::new(SharedMemory::new(1 << 20)), charge);
    assert!(body.push(Frame::data(vec![0; 10_000].into())));
    assert_eq!(account.charged(), 16 * 1024);
    let full = Memory::new(1, Clock::start()).charge(Holder::Cache);
    let unkept = SharedBody::new(SizeHint::new(), Arc::new(SharedMemory::new(1 << 20)), full);
    assert!(!unkept.push(Frame::data(vec![0; 10_000].into())));
    drop(body);
    assert_eq!(account.charged(), 0);
}
