//! `andante explain`: predicts the handling of a request, by a configuration or in a running andante.

mod text;

use std::{
    io::{self, Write as _},
    net::IpAddr,
    path::PathBuf,
    process::ExitCode,
};

use super::{Failure, USAGE, admin_client::AdminArgs, json_text, serve, terminal};
use crate::{
    admin::explanation::{Explanation, Question},
    app,
    config::{Config, Settings, Sources},
};

/// Predicts the handling of a request: its rules and limits, and whether it would leave
///
/// Sends nothing. Without --admin the answer follows from the configuration: then no request waits, and nothing has
/// been learned yet. With --admin the andante at that address reports what it would do with such a request now, and
/// when the request would leave. ANDANTE_ADMIN counts as --admin unless --config, --limit or --intercept is given.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The URL of the request, or the path of a gateway, as in /openai/v1/models
    #[arg(value_name = "URL")]
    url: String,
    /// Method of the request
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// Header field of the request; may be repeated. Values are only compared by hashes, and shown nowhere
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Client that sends the request [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    client: Option<IpAddr>,
    /// Configuration file [env: ANDANTE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Limits of a host, as in api.example.com=10/s,500/min; may be repeated [env: ANDANTE_LIMIT]
    #[arg(long, value_name = "HOST=LIMITS", conflicts_with = "admin")]
    limit: Vec<String>,
    /// A host whose HTTPS is intercepted; may be repeated; or none [env: ANDANTE_INTERCEPT] [default: none]
    #[arg(long, value_name = "HOST|none", conflicts_with = "admin")]
    intercept: Vec<String>,
    /// Ask the andante with this admin address, as in 127.0.0.1:9128 or http://127.0.0.1:9128 [env: ANDANTE_ADMIN]
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    admin: Option<String>,
    /// File with the admin token, which is needed on other machines
    #[arg(long, value_name = "FILE", env = "ANDANTE_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  andante explain https://api.example.com/v1/users --config andante.toml
  andante explain -X POST https://api.example.com/search -H 'X-Batch: 1' --config andante.toml
  andante explain https://api.example.com/v1/users --admin 127.0.0.1:9128
  andante explain /openai/v1/models --config andante.toml
  andante explain --limit api.example.com=10/s http://api.example.com/ --json | jq .now

Exit codes: 0 explained, also where andante would refuse the request; 1 not explained, 2 wrong usage.";

/// Prints the prediction.
pub async fn run(args: &Args) -> ExitCode {
    let question = Question {
        url: args.url.clone(),
        method: args.method.clone(),
        headers: args.headers.clone(),
        client: args.client,
    };
    let request = match question.request() {
        Ok(request) => request,
        Err(error) => {
            let (what, instead) = error.into_parts();
            terminal::failure(&Failure::new(what).hinting(instead));
            return ExitCode::from(USAGE);
        }
    };
    let admin = args.admin();
    let explained = match &admin {
        Some(admin) => ask(admin, args, &question).await,
        None => args.load().map(|config| app::explain_by(&config, &request, question.client())),
    };
    let explanation = match explained {
        Ok(explanation) => explanation,
        Err(code) => return code,
    };
    let text = match args.json {
        true => json_text::pretty(&explanation) + "\n",
        false => text::of(&explanation, &question, admin.is_some()),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => terminal::failure(&Failure::writing(error)),
    }
}

async fn ask(admin: &str, args: &Args, question: &Question) -> Result<Explanation, ExitCode> {
    let client = AdminArgs::of(None, Some(admin.to_owned()), args.token.clone()).client("explain").await?;
    let question = serde_json::to_value(question).expect("texts");
    client.post("/api/v1/explain", &question).await.map_err(|failure| terminal::failure(&failure))
}

// === impl Args ===

impl Args {
    /// Admin address of the andante to ask; `None` to use the configuration.
    fn admin(&self) -> Option<String> {
        let names_config = self.config.is_some() || !self.limit.is_empty() || !self.intercept.is_empty();
        let named = || serve::environment().admin.filter(|admin| !names_config && !admin.is_empty() && admin != "off");
        self.admin.clone().or_else(named)
    }

    /// The configuration for the prediction. Warnings are ignored.
    fn load(&self) -> Result<Config, ExitCode> {
        let flags = Settings { limits: self.limit.clone(), intercept: self.intercept.clone(), ..Settings::default() };
        let file = serve::config_file(self.config.as_ref());
        let loaded = Config::load(&Sources { file, environment: serve::environment(), flags });
        loaded.map(|(config, _)| config).map_err(|problems| {
            terminal::problems(&problems);
            serve::exit_code(&problems)
        })
    }
}
