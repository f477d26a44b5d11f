#pragma once

#include <nlohmann/json.hpp>

#include "framework/data/tokenizer.h"
#include "launcher/base/piped_process.h"

namespace strait::tokenizer {

// The process of a tokenizer has died, does not answer, or gives what is no answer: the next
// request would fare no better.
class DeadWorker : public base::UserError {
 public:
  using UserError::UserError;
};

// strait-tokenizer.py in a process of its own. Requests go in as JSON; an answer is JSON and
// perhaps token ids. One thread.
//
// UserError: the process cannot be started. DeadWorker: it has died, or does not answer within its
// time. StoreError bad_input: what it refuses, but for a refusal that names one of the records of
// the request.
class PythonWorker {
 public:
  struct Answer {
    nlohmann::json head;
    std::vector<std::int32_t> tokens;
  };

  // `name`: "the tokenizer process of DIR". Its Python is that of base::python_for().
  PythonWorker(std::string name, std::chrono::seconds timeout);

  static std::string script_hash();  // UserError: the script is not there

  void write(const std::string& request);
  Answer read();
  Answer ask(const std::string& request) {
    write(request);
    return read();
  }

  // Runs what takes an answer apart. The process runs a Python of the user's, which may be any
  // program, so the answer may be anything.
  void understand(const std::function<void()>& read_answer);
  [[noreturn]] void refuse_death(const std::string& how);

 private:
  std::string name_;
  std::chrono::seconds timeout_;
  base::PipedProcess process_;
};

// The files of a tokenizer, by name: nothing of them is parsed here.
struct TokenizerFolder {
  std::filesystem::path directory;
  std::string hash;  // over the files that decide what tokens a record becomes
};

// Whether a directory has files of a tokenizer, in whatever form.
bool has_tokenizer(const std::filesystem::path& directory);

// StoreError bad_input: the directory has no tokenizer, or one of a form that this build cannot
// read; says what to do.
TokenizerFolder open_tokenizer(const std::filesystem::path& directory);

// A tokenizer's directory, opened by a Python process (strait-tokenizer.py) that has the packages
// tokenizers and jinja2. Batches of records go in, tokens and targets come out. Chat templates run
// there, in a sandbox with limits.
//
// One thread. UserError, and StoreError bad_input for what is wrong with a record or a file: the
// process cannot be started, has died, or does not answer within its time; what it refuses.
class TokenizerWorker : public data::Tokenizer {
 public:
  // Its Python is that of base::python_for(). `chat_template`: the name of one of the script's that
  // is used in place of the directory's; empty: that.
  explicit TokenizerWorker(const std::filesystem::path& directory,
                           const std::string& chat_template = {},
                           std::chrono::seconds timeout = std::chrono::minutes(5));

  // One document for each record, in order.
  std::vector<data::Document> documents(std::span<const data::Record> records,
                                        data::Targets targets);

  void send(std::span<const data::Record> records, data::Targets targets) override;
  std::vector<data::Document> receive() override;
  std::size_t sent() const override { return batches_.size(); }

  // The tokens before a continuation of the text, or before the assistant's answer to a chat
  // (data::Record::chat).
  std::vector<std::int32_t> prompt(const std::string& text);
  std::vector<std::int32_t> chat_prompt(const std::string& chat);

  // The text that `tokens` are behind `prompt`; control tokens are left out.
  std::string decode(std::span<const std::int32_t> prompt, std::span<const std::int32_t> tokens);
  // With control tokens.
  std::string decode_all(std::span<const std::int32_t> tokens);

  const std::vector<std::int32_t>& ends() const { return ends_; }      // tokens that end an answer
  const std::string& template_text() const { return template_text_; }  // of the named template
  bool ends_records() const override { return ends_records_; }

 private:
  // One that was sent.
  struct Batch {
    std::vector<data::Document> documents;  // without tokens
    // Of each request the records whose parts it has.
    std::vector<std::vector<std::size_t>> requests;
  };
  void add_tokens(const PythonWorker::Answer& answer, const std::vector<std::size_t>& owners,
                  std::vector<data::Document>& documents);
  std::string text_of(const PythonWorker::Answer& answer);

  std::filesystem::path directory_;
  PythonWorker worker_;
  std::deque<Batch> batches_;
  std::vector<std::int32_t> ends_;
  bool ends_records_ = false;
  std::string template_text_;
};

// Directories of tokenizers, each opened by a TokenizerWorker, and Parquet files, each read by such
// a process, which needs the package pyarrow for them.
class PythonTokenizers : public data::TokenizerOpener {
 public:
  // See TokenizerWorker.
  explicit PythonTokenizers(std::string chat_template = {})
      : chat_template_(std::move(chat_template)) {}

  const std::string& chat_template() const { return chat_template_; }

  std::string hash(const std::filesystem::path& directory) const override;
  std::string program_hash() const override;  // UserError: the worker's script is not there
  std::unique_ptr<data::Tokenizer> start(const std::filesystem::path& directory) const override;
  std::unique_ptr<data::TableReader> open_table(const std::filesystem::path& file) const override;

 private:
  std::string chat_template_;
};

}  // namespace strait::tokenizer
