use http_body_util::Full;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};

use super::*;

fn config() -> Config {
    Config::default()
}

async fn closes_after(activity: &Activity, config: &Config) -> (Closed, Duration) {
    let start = Instant::now();
    let reason = activity.expired(config).await;
    (reason, start.elapsed())
}

fn assert_about(elapsed: Duration, limit: Duration) {
    assert!(
        elapsed >= limit && elapsed <= limit + limit / 2 + Duration::from_secs(5),
        "{elapsed:?} for {limit:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_closed() {
    let (reason, elapsed) = closes_after(&Activity::default(), &config()).await;
    assert_eq!(reason, Closed::FirstByte);
    assert_about(elapsed, config().first_byte_timeout);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_dribbles_is_closed() {
    let activity = Arc::new(Activity::default());
    let (mut near, far) = tokio::io::duplex(64);
    let mut watched = Watched::new(far, activity.clone());
    let dribble = async {
        loop {
            near.write_all(b"x").await.unwrap();
            watched.read_u8().await.unwrap();
            time::sleep(Duration::from_secs(1)).await;
        }
    };
    let config = config();
    tokio::select! {
        () = dribble => unreachable!(),
        (reason, elapsed) = closes_after(&activity, &config) => {
            assert_eq!(reason, Closed::Head);
            assert_about(elapsed, config.head_timeout);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_lasts_longer_than_a_head() {
    let activity = Arc::new(Activity::default());
    activity.reads.store(10, Relaxed);
    drop(activity.begin_request(http::Version::HTTP_11));
    let (reason, elapsed) = closes_after(&activity, &config()).await;
    assert_eq!(reason, Closed::Idle);
    assert_about(elapsed, config().idle_timeout);
}

#[tokio::test(start_paused = true)]
async fn pings_do_not_keep_an_idle_connection_nor_look_like_a_head() {
    let activity = Arc::new(Activity::default());
    drop(activity.begin_request(http::Version::HTTP_2));
    let config = config();
    let pings = async {
        loop {
            time::sleep(Duration::from_secs(1)).await;
            activity.reads.fetch_add(17, Relaxed);
        }
    };
    tokio::select! {
        () = pings => unreachable!(),
        (reason, elapsed) = closes_after(&activity, &config) => {
            assert_eq!(reason, Closed::Idle);
            assert_about(elapsed, config.idle_timeout);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_being_answered_is_not_closed() {
    let activity = Arc::new(Activity::default());
    let _in_flight = activity.begin_request(http::Version::HTTP_11);
    let config = config();
    let watch = time::timeout(Duration::from_secs(3600), closes_after(&activity, &config));
    assert!(watch.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_takes_is_given_up() {
    let activity = Arc::new(Activity::default());
    let in_flight = activity.begin_request(http::Version::HTTP_2);
    let _body = WatchedBody::new(Full::<bytes::Bytes>::default(), in_flight);
    let (reason, elapsed) = closes_after(&activity, &config()).await;
    assert_eq!(reason, Closed::Stalled);
    assert_about(elapsed, config().stall_timeout);
}

#[tokio::test(start_paused = true)]
async fn answered_pings_are_no_taking() {
    let activity = Arc::new(Activity::default());
    let in_flight = activity.begin_request(http::Version::HTTP_2);
    let _body = WatchedBody::new(Full::<bytes::Bytes>::default(), in_flight);
    let config = config();
    let pings = async {
        loop {
            time::sleep(Duration::from_secs(1)).await;
            activity.writes.fetch_add(17, Relaxed);
        }
    };
    tokio::select! {
        () = pings => unreachable!(),
        (reason, elapsed) = closes_after(&activity, &config) => {
            assert_eq!(reason, Closed::Stalled);
            assert_about(elapsed, config.stall_timeout);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_does_not_move_is_given_up() {
    let activity = Arc::new(Activity::default());
    let (_near, far) = tokio::io::duplex(64);
    let mut watched = Watched::new(far, activity.clone());
    let config = config();
    tokio::select! {
        _ = watched.write_all(&[0; 100]) => unreachable!(),
        (reason, _) = closes_after(&activity, &config) => assert_eq!(reason, Closed::Stalled),
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_makes_room_when_asked() {
    let idle = Activity::default();
    let config = config();
    let (reason, ()) = tokio::join!(idle.expired(&config), async { idle.pressure.ask() });
    assert_eq!(reason, Closed::Displaced);
}

#[tokio::test(start_paused = true)]
async fn a_head_under_way_makes_room_after_a_while() {
    let head = Activity::default();
    let config = config();
    let begun = Instant::now();
    let (reason, ()) = tokio::join!(head.expired(&config), async {
        // Idle when it was last looked at: it is asked, and has begun a head since.
        head.reads.store(10, Relaxed);
        head.pressure.ask();
    });
    assert_eq!(reason, Closed::Displaced);
    assert_about(begun.elapsed(), HEAD_GRACE);
    assert!(begun.elapsed() < HEAD_GRACE * 2, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn nobody_makes_room_for_a_wish_that_was_withdrawn() {
    let new = Activity::default();
    new.pressure.ask();
    new.pressure.withdraw();
    assert_eq!(new.expired(&config()).await, Closed::FirstByte);
}

/// Somebody wants room.
type Wish = fn(&Pressure);

const A_NEWCOMER: Wish = |pressure| {
    pressure.ask();
    pressure.insist();
};
const ONE_TURNED_AWAY: Wish = |pressure| pressure.relief.want();

/// Wants room of a connection whose peer takes so much every 100 ms.
async fn asks_a_reader(
    wish: Wish,
    takes: u64,
    lasts: Duration,
) -> Result<(Closed, Duration), time::error::Elapsed> {
    let (activity, config) = (Activity::default(), config());
    activity.reads.store(10, Relaxed);
    activity.write_blocked.store(true, Relaxed);
    let taking = async {
        loop {
            wish(&activity.pressure);
            time::sleep(Duration::from_millis(100)).await;
            activity.writes.fetch_add(takes, Relaxed);
        }
    };
    let begun = Instant::now();
    time::timeout(lasts, async {
        tokio::select! {
            () = taking => unreachable!(),
            reason = activity.expired(&config) => (reason, begun.elapsed()),
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_next_to_nothing_makes_room_after_a_while() {
    let grace = config().stall_timeout / STALL_GRACE;
    for wish in [A_NEWCOMER, ONE_TURNED_AWAY] {
        for takes in [0, 1, 1000] {
            let (reason, after) = asks_a_reader(wish, takes, Duration::from_secs(20)).await.unwrap();
            assert_eq!(reason, Closed::Displaced);
            assert!(after >= grace && after < grace * 2, "{takes}: {after:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_what_it_can_is_left_to_it() {
    for wish in [A_NEWCOMER, ONE_TURNED_AWAY] {
        assert!(asks_a_reader(wish, 100_000, Duration::from_secs(600)).await.is_err());
    }
}

/// So many readers of one listener that take next to nothing, for long enough to be known for it.
async fn slow_readers(pressure: &Arc<Pressure>, count: usize) -> JoinSet<Closed> {
    let config = Arc::new(config());
    let mut readers = JoinSet::new();
    for _ in 0..count {
        let (activity, config) = (Activity::new(pressure.clone()), config.clone());
        activity.reads.store(10, Relaxed);
        activity.write_blocked.store(true, Relaxed);
        readers.spawn(async move { activity.expired(&config).await });
    }
    time::sleep(config.stall_timeout / 2).await;
    readers
}

#[tokio::test(start_paused = true)]
async fn slow_readers_go_one_by_one_for_requests_that_are_turned_away() {
    let pressure = Arc::new(Pressure::default());
    let mut readers = slow_readers(&pressure, 5).await;
    for gone in 1..=3 {
        for _ in 0..50 {
            pressure.relief.want();
            time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(readers.len(), 5);
        let reasons: Vec<_> = std::iter::from_fn(|| readers.try_join_next()).map(Result::unwrap).collect();
        assert_eq!(reasons, [Closed::Displaced], "{gone}");
        readers.spawn(std::future::pending());
        time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_holds_nothing_does_not_go_for_a_request_that_was_turned_away() {
    let pressure = Arc::new(Pressure::default());
    let (idle, config) = (Activity::new(pressure.clone()), config());
    let turning_away = async {
        loop {
            pressure.relief.want();
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        reason = idle.expired(&config) => assert_eq!(reason, Closed::FirstByte),
        () = turning_away => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_turned_away_long_ago_is_forgotten() {
    let pressure = Arc::new(Pressure::default());
    pressure.relief.want();
    let mut readers = slow_readers(&pressure, 1).await;
    assert_eq!(readers.join_next().await.unwrap().unwrap(), Closed::Stalled);
}
