#include "launcher/compute/generation.h"

#include "framework/data/data_preparation.h"
#include "framework/store/store_error.h"
#include "framework/tensors/safetensors_reader.h"
#include "framework/utf8.h"
#include "launcher/base/text.h"
#include "launcher/planner/planned_data.h"
#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::compute {
namespace {

constexpr const char* kBytes = "bytes";
// Of a prompt in one pass. Fixed, because it decides the order of sums.
constexpr std::size_t kChunk = 256;
// Of prompts in one pass, so that answers that go on do not wait for long.
constexpr std::size_t kPromptTokens = 512;

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
  std::string decode_all(std::span<const std::int32_t> ids) override {
    return worker_.decode_all(ids);
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

Generation::Generation(std::vector<Prompt> prompts, models::ModelDescription model,
                       TextCoder& coder, const cli::GenerationOptions& options, InFlight in_flight)
    : model_(std::move(model)), coder_(coder), in_flight_(in_flight), batches_(in_flight.batches) {
  for (Prompt& prompt : prompts) add(std::move(prompt), options);
}

std::size_t Generation::add(Prompt prompt, const cli::GenerationOptions& options) {
  const auto length = std::ssize(prompt.tokens);
  if (length == 0 || length >= model_.positions) {
    throw base::UserError(base::ExitCode::bad_input,
                          "{} has {}; 1 to {} leave room for an answer in this model", prompt.name,
                          base::counted(length, "token"), model_.positions - 1);
  }
  const auto [lowest, highest] = std::ranges::minmax(prompt.tokens);
  if (lowest < 0 || highest >= model_.vocabulary) {
    throw base::UserError(
        base::ExitCode::bad_input,
        "{} has the token {} of the tokenizer, but the model has only tokens 0 to {}", prompt.name,
        lowest < 0 ? lowest : highest, model_.vocabulary - 1);
  }
  Sequence& sequence = sequences_.emplace_back();
  sequence.prompt = std::move(prompt.tokens);
  sequence.options = options;
  sequence.capacity = std::min(length + options.max_tokens, model_.positions);
  for (const std::string& stop : options.stops) {
    if (const auto token = coder_.control_token(stop)) sequence.stop_tokens.push_back(*token);
  }
  return sequences_.size() - 1;
}

void Generation::cancel(std::size_t number) {
  Sequence& sequence = sequences_.at(number);
  if (sequence.over) return;
  sequence.cancelled = true;
  sequence.over = number >= started_;  // else with the answer of its pass
}

std::int64_t Generation::cached_bytes(const Sequence& sequence) const {
  const auto format =
      in_flight_.cache_bits == 8 ? models::CacheFormat::int8 : models::CacheFormat::float32;
  return sequence.capacity * model_.cached_bytes(format);
}

std::size_t Generation::together() const {
  const std::size_t most = std::min(in_flight_.sequences, sequences_.size());
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < most; ++i) {
    bytes += cached_bytes(sequences_[i]);
    if (i > 0 && in_flight_.cache_bytes && bytes > *in_flight_.cache_bytes) return i;
  }
  return most;
}

std::vector<run::InferenceRequest> Generation::poll() {
  // In the order of the prompts, although several are answered at the same time.
  for (; reported_ < sequences_.size() && sequences_[reported_].over; ++reported_) {
    Sequence& ended = sequences_[reported_];
    if (done_ && !ended.cancelled) done_(reported_, ended.completion);
    ended = Sequence{};
    ended.over = true;
  }
  std::vector<run::InferenceRequest> requests;
  for (std::size_t number = 0; number < batches_.size(); ++number) {
    if (batches_[number].in_flight) continue;
    if (auto batch = next(number)) requests.emplace_back(std::move(*batch));
  }
  return requests;
}

std::optional<run::ExtendBatch> Generation::next(std::size_t number) {
  Batch& batch = batches_[number];
  // Few prompts are spread over all batches, so that every stage has work.
  const std::size_t together = std::min(in_flight_.sequences, sequences_.size());
  const std::size_t room = (together + batches_.size() - 1) / batches_.size();
  for (; batch.running.size() < room && started_ < sequences_.size(); ++started_) {
    if (sequences_[started_].over) continue;  // cancelled
    const std::int64_t more = cached_bytes(sequences_[started_]);
    if (cached_ > 0 && in_flight_.cache_bytes && more > *in_flight_.cache_bytes - cached_) break;
    cached_ += more;
    batch.running.push_back(started_);
  }
  run::ExtendBatch pass;
  pass.number = static_cast<std::int64_t>(number);
  pass.ended = std::exchange(batch.ended, {});
  batch.awaited.clear();
  std::size_t left = kPromptTokens;
  for (const std::size_t running : batch.running) {
    auto more = extend(running, left);
    if (!more) continue;
    if (more->choose) batch.awaited.push_back(running);
    pass.sequences.push_back(std::move(*more));
  }
  batch.in_flight = !pass.sequences.empty();
  if (!batch.in_flight && pass.ended.empty()) return std::nullopt;
  return pass;
}

std::optional<run::ExtendSequence> Generation::extend(std::size_t number, std::size_t& left) {
  Sequence& sequence = sequences_[number];
  run::ExtendSequence request;
  request.sequence = static_cast<std::int64_t>(number);
  request.number = sequence.options.number.value_or(request.sequence);
  request.capacity = sequence.capacity;
  request.cache_bits = in_flight_.cache_bits;
  request.sampling = sequence.options.sampling;
  request.score = sequence.options.score;
  if (sequence.fed == sequence.prompt.size()) {
    request.tokens = {sequence.answer.back()};
    return request;
  }
  const auto rest = std::span(sequence.prompt).subspan(sequence.fed);
  // Every chunk begins where it begins when the prompt is alone, or sums would have another order.
  // Scores are of a prompt as a whole.
  const std::size_t count = request.score ? rest.size() : std::min(rest.size(), kChunk);
  if (count > left && left < kPromptTokens) return std::nullopt;
  left -= std::min(left, count);
  request.tokens.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count));
  sequence.fed += count;
  request.choose = sequence.fed == sequence.prompt.size();
  return request;
}

std::vector<run::InferenceRequest> Generation::on_answer(const run::InferenceAnswer& answer) {
  const bool known = answer.number >= 0 && answer.number < std::ssize(batches_) &&
                     batches_[static_cast<std::size_t>(answer.number)].in_flight;
  if (!known) throw base::MessageError("tokens of a batch that is not in flight");
  Batch& batch = batches_[static_cast<std::size_t>(answer.number)];
  if (!std::ranges::equal(answer.tokens, batch.awaited, {}, &run::ChosenToken::sequence,
                          [](std::size_t one) { return static_cast<std::int64_t>(one); })) {
    throw base::MessageError("tokens of sequences that do not go on");
  }
  batch.in_flight = false;
  for (const run::ChosenToken& one : answer.tokens) {
    const auto number = static_cast<std::size_t>(one.sequence);
    Sequence& sequence = sequences_[number];
    if (!sequence.cancelled && append(number, one) && over_) over_(number, sequence.completion);
  }
  // Also what has more of its prompt to enter may be cancelled.
  std::erase_if(batch.running, [&](std::size_t number) {
    Sequence& sequence = sequences_[number];
    if (!sequence.over && !sequence.cancelled) return false;
    sequence.over = true;
    cached_ -= cached_bytes(sequence);
    batch.ended.push_back(static_cast<std::int64_t>(number));
    return true;
  });
  return Generation::poll();
}

bool Generation::append(std::size_t number, const run::ChosenToken& chosen) {
  Sequence& sequence = sequences_[number];
  const auto token = static_cast<std::int32_t>(chosen.token);
  std::ranges::copy(chosen.scores, std::back_inserter(sequence.completion.scores));
  if (coder_.is_end(token)) {
    end(sequence, Completion::End::model);
  } else if (std::ranges::find(sequence.stop_tokens, token) != sequence.stop_tokens.end()) {
    end(sequence, Completion::End::stop);
  } else {
    sequence.answer.push_back(token);
    const auto length = std::ssize(sequence.prompt) + std::ssize(sequence.answer);
    if (length >= sequence.capacity) end(sequence, Completion::End::length);
  }
  if (sequence.over || shown_ || !sequence.options.stops.empty()) show(number);
  return sequence.over;
}

void Generation::end(Sequence& sequence, Completion::End how) {
  sequence.over = true;
  sequence.completion.end = how;
  sequence.completion.tokens = std::ssize(sequence.answer);
  sequence.completion.answer = sequence.answer;
}

void Generation::show(std::size_t number) {
  Sequence& sequence = sequences_[number];
  const std::vector<std::string>& stops = sequence.options.stops;
  // The whole answer anew: a token may change how the one before it is written.
  std::string text = coder_.decode(sequence.prompt, sequence.answer);
  std::size_t stop = std::string::npos;
  for (const std::string& one : stops) stop = std::min(stop, text.find(one));
  if (stop != std::string::npos) {
    text.resize(stop);
    end(sequence, Completion::End::stop);
  }
  if (sequence.over) sequence.completion.text = text;
  const std::size_t until = sequence.over ? text.size() : certain_length(text, stops);
  if (until <= sequence.shown) return;
  if (shown_) shown_(number, text.substr(sequence.shown, until - sequence.shown));
  sequence.shown = until;
}

}  // namespace strait::compute
