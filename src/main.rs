//! The binary: everything is in the library.

fn main() {
    let mut config = andante::config::Config::default();
    let args: Vec<String> = std::env::args().collect();
    config.listen = vec![args[1].parse().unwrap()];
    if let Some(limit) = args.get(2) {
        let limits: andante::limit::Limits = limit.parse().unwrap();
        let mut policy = andante::policy::Policy::new("x", vec!["*".parse().unwrap()]);
        policy.limits = limits.limits;
        policy.in_flight = limits.in_flight;
        config.rules = andante::policy::Rules::new(vec![policy]);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let running = andante::app::Running::start(config).await.unwrap();
        tokio::signal::ctrl_c().await.unwrap();
        running.drain().await;
    });
}
