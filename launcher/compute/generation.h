#pragma once

#include "framework/data/record.h"
#include "launcher/cli/compute_request.h"
#include "launcher/recipe/run_files.h"
#include "models/model_description.h"

namespace strait::compute {

// Text to tokens and back, as a run's data were made.
class TextCoder {
 public:
  TextCoder() = default;
  TextCoder(const TextCoder&) = delete;
  TextCoder& operator=(const TextCoder&) = delete;
  virtual ~TextCoder() = default;

  // A text that is continued.
  virtual std::vector<std::int32_t> encode(const std::string& text) = 0;
  // A chat (data::prompt_record), which the assistant's answer follows. StoreError with its origin
  // where there is no chat template, or it refuses the chat.
  virtual std::vector<std::int32_t> encode_chat(const data::Record& chat) = 0;
  virtual std::string decode(std::span<const std::int32_t> prompt,
                             std::span<const std::int32_t> answer) = 0;
  // With control tokens, where they have a text.
  virtual std::string decode_all(std::span<const std::int32_t> ids) { return decode({}, ids); }
  virtual bool is_end(std::int64_t token) const = 0;
  // The token of this name that decode() leaves out; there may be none.
  virtual std::optional<std::int32_t> control_token(const std::string& name) = 0;
};

// "bytes", or the tokenizer's directory: `chosen` if it is not empty, else the recipe's, else the
// model's own, else bytes where the data say that they are bytes. nullopt: the verb has no
// --tokenizer, which is then no advice. StoreError mismatch: the run's data were made by another
// one, or that one is gone.
std::string tokenizer_of_run(const plan::RunFile& run, const std::optional<std::string>& chosen);

// The text of data.chat_template; empty: the tokenizer's own is used.
std::string named_template(const recipe::Recipe& recipe);
// `recipe`: of the run, with its data.chat_template.
std::unique_ptr<TextCoder> make_text_coder(const std::string& tokenizer,
                                           const recipe::Recipe& recipe = {});

// What made the run's training data; see data::PreparedData::tokenizer. Empty: unknown.
std::string data_tokenizer(const plan::RunFile& run);

struct Prompt {
  std::vector<std::int32_t> tokens;
  std::string name;  // "prompts.jsonl:3: the prompt", for messages
};

struct Completion {
  enum class End { model, stop, length };  // a token that ends a record; a stop text; max_tokens
  std::string text;
  std::int64_t tokens = 0;  // that were generated, the model's end not counted
  End end = End::length;
  std::vector<std::int32_t> answer;
  // With GenerationOptions::score: of the prompt's tokens from the second on, and of the answer's;
  // also of a token that ended it.
  std::vector<run::TokenScore> scores;
};

// What is in progress at the same time.
struct InFlight {
  std::size_t batches = 1;                       // as many as keep every stage busy
  std::size_t sequences = 1;                     // in all batches
  std::int64_t cache_bits = 32;                  // of keys and values
  std::optional<std::int64_t> cache_bytes = {};  // what they may take; one prompt always runs
};

// The tokens of prompts to the texts that follow them. A completion depends on the model, its
// prompt, the options and its number among the prompts alone.
// Sequences are in batches. One that has ended leaves its batch, and the next prompt takes its
// place. Prompts enter by chunks of a fixed length, so that a long one holds up no other.
class Generation : public run::InferenceClient {
 public:
  using Shown = std::function<void(std::size_t prompt, const std::string& more)>;
  using Done = std::function<void(std::size_t prompt, const Completion& completion)>;

  // `coder` outlives this. UserError: see add().
  Generation(std::vector<Prompt> prompts, models::ModelDescription model, TextCoder& coder,
             const cli::GenerationOptions& options, InFlight in_flight);

  // Returns its number. UserError: it is empty, fills the model, or has tokens that it lacks.
  std::size_t add(Prompt prompt, const cli::GenerationOptions& options);
  // The prompt gets no completion. In progress, it leaves its batch with the answer of its pass.
  void cancel(std::size_t number);
  // How many of its first prompts are in progress at the same time.
  std::size_t together() const;

  // Called with every piece of text as soon as it cannot change any more.
  void on_text(Shown shown) { shown_ = std::move(shown); }
  // Called with every completion, in the order of the prompts.
  void on_done(Done done) { done_ = std::move(done); }
  // Called with every completion at once.
  void on_over(Done over) { over_ = std::move(over); }

  std::vector<run::InferenceRequest> begin() override { return poll(); }
  std::vector<run::InferenceRequest> on_answer(const run::InferenceAnswer& answer) override;
  std::vector<run::InferenceRequest> poll() override;
  bool finished() const override { return reported_ == sequences_.size(); }

 private:
  struct Sequence {
    std::vector<std::int32_t> prompt;
    cli::GenerationOptions options;
    std::vector<std::int32_t> stop_tokens;  // the stops that are control tokens
    std::int64_t capacity = 0;              // the most tokens, with the prompt
    std::size_t fed = 0;                    // tokens of the prompt that were asked
    std::vector<std::int32_t> answer;
    std::size_t shown = 0;  // bytes of the text
    bool over = false;
    bool cancelled = false;
    Completion completion;
  };
  struct Batch {
    std::vector<std::size_t> running;
    std::vector<std::size_t> awaited;  // those that choose a token in the pass that goes on
    std::vector<std::int64_t> ended;   // since the last pass
    bool in_flight = false;
  };

  std::int64_t cached_bytes(const Sequence& sequence) const;
  // The next pass of a batch. None: it has nothing to do.
  std::optional<run::ExtendBatch> next(std::size_t number);
  // What a sequence gets in it. None: the pass already has `left` tokens of other prompts.
  std::optional<run::ExtendSequence> extend(std::size_t number, std::size_t& left);
  // Whether the sequence has ended with this token.
  bool append(std::size_t number, const run::ChosenToken& chosen);
  static void end(Sequence& sequence, Completion::End how);
  // The text so far; a stop text ends it.
  void show(std::size_t number);

  std::vector<Sequence> sequences_;
  const models::ModelDescription model_;
  TextCoder& coder_;
  const InFlight in_flight_;
  std::vector<Batch> batches_;
  std::size_t started_ = 0;
  std::size_t reported_ = 0;
  std::int64_t cached_ = 0;  // bytes, of sequences in progress
  Shown shown_;
  Done done_;
  Done over_;
};

// How much of a growing text is certain: not a part of a character or of one of `stops`. Pure.
std::size_t certain_length(const std::string& text, const std::vector<std::string>& stops);

}  // namespace strait::compute
