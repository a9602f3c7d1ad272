//! HTTP messages on their way: fields, bodies, and how far an exchange has come. Knows of no connection.

pub(crate) mod alarm;
pub(crate) mod appetite;
pub(crate) mod body_beginning;
pub(crate) mod cache_control;
pub(crate) mod connection_task;
pub(crate) mod fields;
pub(crate) mod frames_ahead;
pub(crate) mod gateway;
pub(crate) mod incoming_body;
pub(crate) mod interim;
pub(crate) mod interim_reader;
pub(crate) mod json_number;
pub(crate) mod kept_head;
pub(crate) mod priority;
pub(crate) mod progress;
pub(crate) mod quoted_list;
pub(crate) mod recorded_body;
pub(crate) mod replay_buffer;
pub(crate) mod replay_memory;
pub(crate) mod request_body;
pub(crate) mod send;
pub(crate) mod server_timing;
pub(crate) mod shared_body;
pub(crate) mod stream_body;
pub(crate) mod usage;
pub(crate) mod writes;
