#include "launcher/cli/text_coder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "framework/data/byte_tokenizer.h"
#include "framework/data/data_preparation.h"
#include "framework/store/store_error.h"
#include "framework/tensors/safetensors_reader.h"
#include "launcher/tokenizer/tokenizer_folder.h"
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
  explicit WorkerCoder(const std::string& directory) : worker_(directory) {}

  std::vector<std::int32_t> encode(const std::string& text) override {
    return worker_.prompt(text);
  }
  std::vector<std::int32_t> encode_chat(const data::Record& chat) override {
    try {
      return worker_.chat_prompt(chat.chat);
    } catch (const store::StoreError& error) {
      throw store::StoreError(error.kind(), fmt::format("{}: {}", chat.origin, error.what()));
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
    return store::StoreError(store::StoreError::Kind::mismatch,
                             fmt::format("{}; {}", what, chosen ? option : back));
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
  const std::string identity = data::tokenizer_identity(tokenizer, tokenizer::PythonTokenizers());
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

std::unique_ptr<TextCoder> make_text_coder(const std::string& tokenizer) {
  if (tokenizer == kBytes) return std::make_unique<ByteCoder>();
  return std::make_unique<WorkerCoder>(tokenizer);
}

}  // namespace strait::cli
