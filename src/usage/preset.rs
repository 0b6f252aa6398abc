//! Presets: where the APIs of language models write the tokens that a response took.
//!
//! The sum is one token for each token of the parts, never of a total beside its parts, and never of
//! a part of a part:
//!
//! - `OpenAI`: cached tokens are among `prompt_tokens`, and those of reasoning among
//!   `completion_tokens`. Embeddings have only `prompt_tokens`.
//! - Anthropic: `input_tokens` is without the cache, so both numbers of the cache are added. The
//!   numbers of `message_delta` are cumulative: they replace those of `message_start`.
//! - Gemini: `totalTokenCount` is `promptTokenCount` + `candidatesTokenCount` + `thoughtsTokenCount` +
//!   `toolUsePromptTokenCount`. The parts are read, so that a response without the total has a number.
//!   `cachedContentTokenCount` is among `promptTokenCount`.
//! - Ollama: `prompt_eval_count` is absent where the prompt was cached, and counts nothing then.

use super::{
    number::Weight,
    queries::{Query, Term},
    settle::Otherwise,
};

/// An API whose responses have the number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Chat completions and embeddings of `OpenAI`, and the many APIs of the same shape.
    OpenAi,
    /// The Responses API of `OpenAI`.
    OpenAiResponses,
    /// The Messages API of Anthropic.
    Anthropic,
    /// `generateContent` and `streamGenerateContent` of Gemini.
    Gemini,
    /// `/api/chat` and `/api/generate` of Ollama.
    Ollama,
}

/// A preset's numbers, each with the paths of its last value, and the paths that come last.
struct Paths {
    numbers: &'static [&'static [&'static str]],
    ends: &'static [&'static str],
}

const OPENAI: Paths = Paths {
    numbers: &[&["usage.prompt_tokens"], &["usage.completion_tokens"]],
    ends: &["usage.completion_tokens"],
};

const OPENAI_RESPONSES: Paths = Paths {
    numbers: &[
        &["usage.input_tokens", "response.usage.input_tokens"],
        &["usage.output_tokens", "response.usage.output_tokens"],
    ],
    ends: &["usage.output_tokens", "response.usage.output_tokens"],
};

const ANTHROPIC: Paths = Paths {
    numbers: &[
        &["usage.input_tokens", "message.usage.input_tokens"],
        &["usage.cache_creation_input_tokens", "message.usage.cache_creation_input_tokens"],
        &["usage.cache_read_input_tokens", "message.usage.cache_read_input_tokens"],
        &["usage.output_tokens", "message.usage.output_tokens"],
    ],
    // That of `message_start` is the number before anything was written.
    ends: &["usage.output_tokens"],
};

const GEMINI: Paths = Paths {
    numbers: &[
        &["usageMetadata.promptTokenCount"],
        &["usageMetadata.candidatesTokenCount"],
        &["usageMetadata.thoughtsTokenCount"],
        &["usageMetadata.toolUsePromptTokenCount"],
    ],
    // Every event has the numbers so far; only the last one says why it is the last.
    ends: &["candidates.finishReason"],
};

const OLLAMA: Paths =
    Paths { numbers: &[&["prompt_eval_count"], &["eval_count"]], ends: &["eval_count"] };

impl Preset {
    /// All presets.
    pub const ALL: [Self; 5] =
        [Self::OpenAi, Self::OpenAiResponses, Self::Anthropic, Self::Gemini, Self::Ollama];

    /// Returns its name in the configuration.
    pub const fn label(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// Returns the sum of its tokens.
    pub fn query(self) -> Query {
        let paths = self.paths();
        let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let term = |paths: &&[&str]| Term { paths: owned(paths), weight: Weight::ONE };
        Query { terms: paths.numbers.iter().map(term).collect(), ends: owned(paths.ends) }
    }

    /// Returns the cost of a response without a number: a token for four bytes of the request, and
    /// one for each event.
    pub fn otherwise() -> Otherwise {
        Otherwise::Weights {
            request_bytes: Weight::thousandths(250),
            response_bytes: Weight::default(),
            events: Weight::ONE,
        }
    }

    const fn paths(self) -> Paths {
        match self {
            Self::OpenAi => OPENAI,
            Self::OpenAiResponses => OPENAI_RESPONSES,
            Self::Anthropic => ANTHROPIC,
            Self::Gemini => GEMINI,
            Self::Ollama => OLLAMA,
        }
    }
}
