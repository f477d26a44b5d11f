#include "launcher/cli/generation.h"

#include "framework/data/data_preparation.h"
#include "framework/data/tokenizer.h"
#include "framework/store/store_error.h"
#include "framework/tensors/safetensors_reader.h"
#include "framework/utf8.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/planner/planned_data.h"
#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::cli {

namespace {

constexpr const char* kBytes = "bytes";

class ByteCoder : public TextCoder {
 public:
  std::vector<std::int32_t> encode(const std::string& text) override {
    return data::ByteTokenizer::encode(text);
  }
  // As the record of the same chat with an answer, up to there.
  std::vector<std::int32_t> encode_chat(const data::Record& chat) override {
    data::Record record = chat;
    record.pieces.push_back({"assistant: ", false});
    record.last = false;
    return data::ByteTokenizer::document(record).tokens;
  }
  std::string decode(std::span<const std::int32_t> /*prompt*/,
                     std::span<const std::int32_t> answer) override {
    return data::ByteTokenizer::decode(answer);
  }
  bool is_end(std::int64_t token) const override { return token == data::ByteTokenizer::kEnd; }
  std::optional<std::int32_t> control_token(const std::string& /*name*/) override { return {}; }
};

class WorkerCoder : public TextCoder {
 public:
  WorkerCoder(const std::string& directory, const std::string& chat_template)
      : worker_(directory, chat_template) {}

  std::vector<std::int32_t> encode(const std::string& text) override {
    return worker_.prompt(text);
  }
  std::vector<std::int32_t> encode_chat(const data::Record& chat) override {
    try {
      return worker_.chat_prompt(chat.chat);
    } catch (const store::StoreError& error) {
      throw store::StoreError(error.kind(), "{}: {}", chat.origin, error.what());
    }
  }
  std::string decode(std::span<const std::int32_t> prompt,
                     std::span<const std::int32_t> answer) override {
    return worker_.decode(prompt, answer);
  }
  bool is_end(std::int64_t token) const override {
    return std::ranges::find(worker_.ends(), token) != worker_.ends().end();
  }
  std::optional<std::int32_t> control_token(const std::string& name) override {
    const std::vector<std::int32_t> tokens = worker_.prompt(name);
    if (tokens.empty()) return std::nullopt;
    const auto last = std::span(tokens).last(1);
    if (worker_.decode_all(last) != name || !worker_.decode({}, last).empty()) return std::nullopt;
    return last.front();
  }

 private:
  tokenizer::TokenizerWorker worker_;
};

// Bytes at the end that begin a character of UTF-8 and do not complete it.
std::size_t incomplete_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80U) return 0;
    if (byte < 0xC0U) continue;  // continues a character
    const std::size_t length = byte < 0xE0U ? 2 : byte < 0xF0U ? 3 : 4;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::string data_tokenizer(const plan::RunFile& run) {
  const std::filesystem::path file = run.plan.train.file;
  if (file.empty() || !std::filesystem::exists(file)) return "";
  return data::recorded_tokenizer(tensors::SafetensorsReader(file).metadata());
}

std::string tokenizer_of_run(const plan::RunFile& run, const std::optional<std::string>& chosen) {
  const recipe::Recipe& recipe = run.plan.recipe;
  const std::string made_by = data_tokenizer(run);
  const auto refuse = [&chosen](const std::string& what, const char* option, const char* back) {
    return store::StoreError(store::StoreError::Kind::mismatch, "{}; {}", what,
                             chosen ? option : back);
  };
  std::string tokenizer = chosen.value_or("");
  if (tokenizer.empty()) tokenizer = recipe.data.tokenizer;
  if (tokenizer.empty() && made_by == kBytes) tokenizer = kBytes;
  if (tokenizer.empty()) tokenizer = recipe.model.path;
  const bool named_by_user = chosen && !chosen->empty();
  if (!named_by_user && tokenizer != kBytes && !tokenizer::has_tokenizer(tokenizer)) {
    throw refuse(fmt::format("the tokenizer that made the run's data ({}) is not in {}",
                             data::paths_of(recipe.data.train), tokenizer),
                 "put it back, or name it with --tokenizer DIRECTORY, or --tokenizer bytes",
                 "put it back");
  }
  if (made_by.empty()) return tokenizer;
  const std::string identity = data::tokenizer_identity(tokenizer, planner::tokenizers_of(recipe));
  if (identity == made_by) return tokenizer;
  if (made_by == kBytes) {
    throw refuse(
        fmt::format("the run's data are byte tokens, and none of the tokenizer of {}", tokenizer),
        "give --tokenizer bytes", "eval and generate take --tokenizer bytes");
  }
  const std::string other =
      tokenizer == kBytes ? "bytes" : fmt::format("that of {} is now ({})", tokenizer, identity);
  throw refuse(fmt::format("the run's data were made by another tokenizer or chat template ({}) "
                           "than {}",
                           made_by, other),
               "name the right one with --tokenizer DIRECTORY", "put the right one back");
}

std::string named_template(const recipe::Recipe& recipe) {
  const std::string name = planner::tokenizers_of(recipe).chat_template();
  if (name.empty()) return "";
  return tokenizer::TokenizerWorker(planner::tokenizer_of(recipe), name).template_text();
}

std::unique_ptr<TextCoder> make_text_coder(const std::string& tokenizer,
                                           const recipe::Recipe& recipe) {
  if (tokenizer == kBytes) return std::make_unique<ByteCoder>();
  return std::make_unique<WorkerCoder>(tokenizer, planner::tokenizers_of(recipe).chat_template());
}

std::size_t certain_length(const std::string& text, const std::vector<std::string>& stops) {
  std::string_view certain = text;
  // A tokenizer makes it of bytes that are no character yet.
  while (certain.ends_with(kReplacement)) certain.remove_suffix(kReplacement.size());
  certain.remove_suffix(incomplete_bytes(certain));
  std::size_t held = 0;
  for (const std::string& stop : stops) {
    // A text may end in the beginning of a stop: it is held back until the next token decides.
    for (std::size_t count = std::min(stop.size(), certain.size()); count > held; --count) {
      if (certain.ends_with(std::string_view(stop).substr(0, count))) held = count;
    }
  }
  return certain.size() - held;
}

Generation::Generation(std::vector<Prompt> prompts, const models::ModelDescription& model,
                       TextCoder& coder, GenerationOptions options, std::size_t in_flight)
    : coder_(coder), options_(std::move(options)), in_flight_(in_flight) {
  for (const std::string& stop : options_.stops) {
    if (const auto token = coder_.control_token(stop)) stop_tokens_.push_back(*token);
  }
  for (Prompt& prompt : prompts) {
    const auto length = static_cast<std::int64_t>(prompt.tokens.size());
    if (length == 0 || length >= model.positions) {
      throw base::UserError(base::ExitCode::bad_input,
                            "{} has {}; 1 to {} leave room for an answer in this model",
                            prompt.name, base::counted(length, "token"), model.positions - 1);
    }
    if (const auto last = std::ranges::max(prompt.tokens); last >= model.vocabulary) {
      throw base::UserError(
          base::ExitCode::bad_input,
          "{} has the token {} of the tokenizer, but the model has only tokens 0 to {}",
          prompt.name, last, model.vocabulary - 1);
    }
    Sequence& sequence = sequences_.emplace_back();
    sequence.prompt = std::move(prompt.tokens);
    sequence.most = std::min(options_.max_tokens, model.positions - length);
  }
}

run::InferenceRequest Generation::start(std::size_t number) {
  const Sequence& sequence = sequences_[number];
  run::ExtendSequence request;
  request.sequence = static_cast<std::int64_t>(number);
  request.tokens = sequence.prompt;
  request.capacity = static_cast<std::int64_t>(sequence.prompt.size()) + sequence.most;
  request.sampling = options_.sampling;
  return request;
}

std::vector<run::InferenceRequest> Generation::begin() {
  std::vector<run::InferenceRequest> requests;
  while (started_ < std::min(in_flight_, sequences_.size())) requests.push_back(start(started_++));
  return requests;
}

std::vector<run::InferenceRequest> Generation::on_answer(const run::InferenceAnswer& answer) {
  const auto* chosen = std::get_if<run::ChosenToken>(&answer);
  if (chosen == nullptr || chosen->sequence < 0 ||
      chosen->sequence >= static_cast<std::int64_t>(started_)) {
    throw base::MessageError("a token of a sequence that does not go on");
  }
  const auto number = static_cast<std::size_t>(chosen->sequence);
  const auto token = static_cast<std::int32_t>(chosen->token);
  if (!append(number, token)) {
    run::ExtendSequence more;
    more.sequence = chosen->sequence;
    more.tokens = {token};
    more.capacity =
        static_cast<std::int64_t>(sequences_[number].prompt.size()) + sequences_[number].most;
    more.sampling = options_.sampling;
    return {more};
  }
  std::vector<run::InferenceRequest> requests{run::EndSequence{chosen->sequence}};
  if (started_ < sequences_.size()) requests.push_back(start(started_++));
  // In the order of the prompts, although several are answered at the same time.
  for (; reported_ < sequences_.size() && sequences_[reported_].over; ++reported_) {
    if (done_) done_(reported_, sequences_[reported_].completion);
  }
  return requests;
}

bool Generation::append(std::size_t number, std::int32_t token) {
  Sequence& sequence = sequences_[number];
  if (coder_.is_end(token)) {
    end(sequence, Completion::End::model);
  } else if (std::ranges::find(stop_tokens_, token) != stop_tokens_.end()) {
    end(sequence, Completion::End::stop);
  } else {
    sequence.answer.push_back(token);
    const bool full = static_cast<std::int64_t>(sequence.answer.size()) >= sequence.most;
    if (full) end(sequence, Completion::End::length);
  }
  if (sequence.over || shown_ || !options_.stops.empty()) show(number);
  return sequence.over;
}

void Generation::end(Sequence& sequence, Completion::End how) {
  sequence.over = true;
  sequence.completion.end = how;
  sequence.completion.tokens = static_cast<std::int64_t>(sequence.answer.size());
}

void Generation::show(std::size_t number) {
  Sequence& sequence = sequences_[number];
  // The whole answer anew: a token may change how the one before it is written.
  std::string text = coder_.decode(sequence.prompt, sequence.answer);
  std::size_t stop = std::string::npos;
  for (const std::string& one : options_.stops) stop = std::min(stop, text.find(one));
  if (stop != std::string::npos) {
    text.resize(stop);
    end(sequence, Completion::End::stop);
  }
  if (sequence.over) sequence.completion.text = text;
  const std::size_t until = sequence.over ? text.size() : certain_length(text, options_.stops);
  if (until <= sequence.shown) return;
  if (shown_) shown_(number, text.substr(sequence.shown, until - sequence.shown));
  sequence.shown = until;
}

}  // namespace strait::cli
