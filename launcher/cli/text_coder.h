#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/data/record.h"
#include "launcher/plan/run_files.h"

namespace strait::cli {

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
  virtual bool is_end(std::int64_t token) const = 0;
  // The token of this name that decode() leaves out; there may be none.
  virtual std::optional<std::int32_t> control_token(const std::string& name) = 0;
};

// "bytes", or the tokenizer's directory: `chosen` if it is not empty, else the recipe's, else the
// model's own, else bytes where the data say that they are bytes. nullopt: the verb has no
// --tokenizer, which is then no advice. StoreError mismatch: the run's data were made by another
// one, or that one is gone.
std::string tokenizer_of_run(const plan::RunFile& run, const std::optional<std::string>& chosen);

std::unique_ptr<TextCoder> make_text_coder(const std::string& tokenizer);

// What made the run's training data; see data::PreparedData::tokenizer. Empty: unknown.
std::string data_tokenizer(const plan::RunFile& run);

}  // namespace strait::cli
