#include "launcher/tokenizer/tokenizer_worker.h"

#include <cstring>

#include "framework/store/file_hash.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/own_program.h"
#include "launcher/base/text.h"

namespace strait::tokenizer {

namespace {

// A larger one is not an answer: the script printed something else into the stream.
constexpr std::size_t kMaximumAnswer = std::size_t{1} << 30;

constexpr base::PythonScript kScript = {"strait-tokenizer.py", "runs tokenizers",
                                        "the packages tokenizers and jinja2"};

std::string little_endian(std::size_t size) {
  std::string bytes;
  for (unsigned shift = 0; shift < 32; shift += 8) {
    bytes += static_cast<char>(size >> shift & 0xffU);
  }
  return bytes;
}

std::size_t from_little_endian(std::string_view bytes) {
  std::size_t size = 0;
  for (unsigned i = 0; i < 4; ++i) {
    size |= std::size_t{static_cast<unsigned char>(bytes[i])} << 8 * i;
  }
  return size;
}

}  // namespace

PythonWorker::PythonWorker(std::string name, std::chrono::seconds timeout)
    : name_(std::move(name)), timeout_(timeout), process_(base::start_of(kScript)) {}

std::string PythonWorker::script_hash() { return store::hash_file(base::file_of(kScript)).hash; }

void PythonWorker::understand(const std::function<void()>& read_answer) {
  try {
    read_answer();
  } catch (const nlohmann::json::exception& error) {
    refuse_death(fmt::format("gave an answer that is not understood ({})", error.what()));
  }
}

void PythonWorker::write(const std::string& request) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  if (!process_.write(little_endian(request.size()), deadline) ||
      !process_.write(request, deadline)) {
    refuse_death("did not take its input");
  }
}

PythonWorker::Answer PythonWorker::read() {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  std::string bytes;
  const auto receive = [&](std::size_t size) {
    bytes.clear();
    if (size > kMaximumAnswer) refuse_death("gave an answer of impossible size");
    const auto result = process_.read_bytes(bytes, size, deadline);
    if (result == base::PipedProcess::ReadResult::timeout) {
      refuse_death(fmt::format("did not answer within {} s", timeout_.count()));
    }
    if (result == base::PipedProcess::ReadResult::end) refuse_death("ended");
  };
  receive(4);
  receive(from_little_endian(bytes));
  Answer answer{nlohmann::json::parse(bytes, nullptr, false), {}};
  if (!answer.head.is_object()) refuse_death("gave an answer that is not JSON");
  std::size_t size = 0;
  understand([&] { size = answer.head.value("body", std::size_t{0}); });
  receive(size);
  answer.tokens.resize(bytes.size() / sizeof(std::int32_t));
  std::memcpy(answer.tokens.data(), bytes.data(), answer.tokens.size() * sizeof(std::int32_t));
  // Of a record the caller knows the place.
  if (answer.head.contains("error") && !answer.head.contains("record")) {
    std::string error;
    understand([&] { error = answer.head["error"].get<std::string>(); });
    throw store::StoreError(store::StoreError::Kind::bad_input, base::printable(error));
  }
  return answer;
}

void PythonWorker::refuse_death(const std::string& how) {
  std::string last = process_.errors();
  last.erase(last.find_last_not_of("\r\n ") + 1);
  const std::size_t line = last.rfind('\n');
  if (line != last.npos) last.erase(0, line + 1);
  throw DeadWorker(base::ExitCode::bad_input,
                   "{} {}{} (its Python is {}, which STRAIT_PYTHON changes)", name_, how,
                   last.empty() ? "" : fmt::format(": {}", base::printable(last)),
                   base::python_for(kScript));
}

namespace {

namespace fs = std::filesystem;

// Those that say how text becomes tokens, and messages text.
constexpr const char* kFiles[] = {"tokenizer.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "tokenizer.model",
                                  "tokenizer_config.json",
                                  "added_tokens.json",
                                  "special_tokens_map.json",
                                  "chat_template.jinja"};
// Forms that this build does not read.
constexpr const char* kOtherForms[] = {"spiece.model", "tiktoken.model", "vocab.txt", "tekken.json",
                                       "vocab.json"};

bool can_read(const fs::path& directory) {
  return fs::exists(directory / "tokenizer.json") || fs::exists(directory / "tokenizer.model") ||
         (fs::exists(directory / "vocab.json") && fs::exists(directory / "merges.txt"));
}

const char* other_form(const fs::path& directory) {
  for (const char* name : kOtherForms) {
    if (fs::exists(directory / name)) return name;
  }
  return nullptr;
}

[[noreturn]] void refuse_tokenizer(const std::string& why) {
  throw store::StoreError(store::StoreError::Kind::bad_input, why);
}

// In the order of their names.
std::vector<fs::path> more_templates(const fs::path& folder) {
  std::vector<fs::path> found = store::entries_of(folder);
  std::erase_if(found, [](const fs::path& file) { return file.extension() != ".jinja"; });
  std::ranges::sort(found);
  return found;
}

using Json = nlohmann::json;

// One request's record, and the index of the caller's record that it is a part of.
struct Part {
  std::size_t record = 0;
  std::string json;
};

std::vector<Part> parts_of(std::span<const data::Record> records) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const data::Record& record = records[i];
    if (!record.chat.empty()) {
      parts.push_back({i, record.chat});
    } else if (record.whole) {
      parts.push_back(
          {i, Json{{"prompt", record.pieces.at(0).text}, {"completion", record.pieces.at(1).text}}
                  .dump()});
    } else {
      const std::string& text = record.pieces.at(0).text;
      std::size_t from = 0;
      do {
        const std::size_t end = data::part_end(text, from);
        parts.push_back({i, Json{{"text", text.substr(from, end - from)},
                                 {"first", record.first && from == 0},
                                 {"last", record.last && end == text.size()}}
                                .dump()});
        from = end;
      } while (from < text.size());
    }
  }
  return parts;
}

}  // namespace

bool has_tokenizer(const fs::path& directory) {
  return can_read(directory) || other_form(directory) != nullptr;
}

TokenizerFolder open_tokenizer(const fs::path& directory) {
  if (!can_read(directory)) {
    if (const char* form = other_form(directory)) {
      refuse_tokenizer(fmt::format(
          "{} has {} and no tokenizer.json, which is what this build reads; write one with "
          "transformers, or name a directory that has one, or \"bytes\" (in a recipe: "
          "data.tokenizer): python3 -c 'import sys; from transformers import AutoTokenizer as T; "
          "T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])' {}",
          directory.string(), form, base::shell_word(directory.string())));
    }
    const bool there = fs::exists(directory);
    refuse_tokenizer(fmt::format(
        "{} is not a tokenizer's directory: there is no tokenizer.json, no tokenizer.model, and no "
        "vocab.json with merges.txt; name a directory that has them, or \"bytes\" (in a recipe: "
        "data.tokenizer){}{}",
        directory.string(), there ? "" : "; ",
        there ? "" : base::download_advice(directory.string(), "--include '*.j*'")));
  }
  store::FileHash hash;
  const auto add = [&](const std::string& text) {
    hash.update(std::as_bytes(std::span(text)));
    hash.update(std::as_bytes(std::span("\0", 1)));
  };
  for (const char* name : kFiles) {
    const fs::path file = directory / name;
    if (fs::exists(file)) add(fmt::format("{} {}", name, store::hash_file(file).hash));
  }
  for (const fs::path& file : more_templates(directory / "additional_chat_templates")) {
    add(fmt::format("{} {}", file.filename().string(), store::hash_file(file).hash));
  }
  return {fs::absolute(directory).lexically_normal(), hash.hex()};
}

TokenizerWorker::TokenizerWorker(const fs::path& directory, const std::string& chat_template,
                                 std::chrono::seconds timeout)
    : directory_(fs::absolute(directory)),
      worker_(fmt::format("the tokenizer process of {}", directory_.string()), timeout) {
  const Json head =
      worker_
          .ask(Json{{"do", "open"}, {"directory", directory_.string()}, {"template", chat_template}}
                   .dump())
          .head;
  worker_.understand([&] {
    ends_ = head.at("ends").get<std::vector<std::int32_t>>();
    ends_records_ = head.at("ends_records").get<bool>();
    template_text_ = head.at("template").get<std::string>();
  });
}

std::vector<data::Document> TokenizerWorker::documents(std::span<const data::Record> records,
                                                       data::Targets targets) {
  send(records, targets);
  return receive();
}

void TokenizerWorker::send(std::span<const data::Record> records, data::Targets targets) {
  constexpr std::array kTargets = {"assistant", "all", "last"};
  Batch batch;
  batch.documents.resize(records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    batch.documents[i].origin = records[i].origin;
    batch.documents[i].whole = records[i].whole;
    batch.documents[i].last = records[i].last;
  }
  const std::vector<Part> parts = parts_of(records);
  for (std::size_t from = 0; from < parts.size();) {
    std::string list;
    std::vector<std::size_t>& owners = batch.requests.emplace_back();
    for (; owners.empty() || (from < parts.size() && list.size() < kBatchBytes); ++from) {
      list += (owners.empty() ? "" : ",") + parts[from].json;
      owners.push_back(parts[from].record);
    }
    worker_.write(fmt::format(R"({{"do":"records","targets":"{}","records":[{}]}})",
                              kTargets[static_cast<std::size_t>(targets)], list));
  }
  batches_.push_back(std::move(batch));
}

std::vector<data::Document> TokenizerWorker::receive() {
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  for (const std::vector<std::size_t>& owners : batch.requests) {
    const auto answer = worker_.read();
    worker_.understand([&] { add_tokens(answer, owners, batch.documents); });
  }
  return std::move(batch.documents);
}

void TokenizerWorker::add_tokens(const PythonWorker::Answer& answer,
                                 const std::vector<std::size_t>& owners,
                                 std::vector<data::Document>& documents) {
  if (answer.head.contains("error")) {
    const auto record = answer.head.value("record", std::size_t{0});
    if (record >= owners.size()) worker_.refuse_death("names a record that it was not given");
    throw store::StoreError(store::StoreError::Kind::bad_input, "{}: {}",
                            documents[owners[record]].origin,
                            base::printable(answer.head["error"].get<std::string>()));
  }
  const Json& counts = answer.head.at("counts");
  const Json& targets = answer.head.at("targets");
  auto token = answer.tokens.begin();
  for (std::size_t i = 0; i < owners.size(); ++i) {
    data::Document& document = documents[owners[i]];
    const auto start = static_cast<std::ptrdiff_t>(document.is_target.size());
    const auto count = counts.at(i).get<std::ptrdiff_t>();
    if (count < 0 || count > answer.tokens.end() - token) {
      worker_.refuse_death("gave fewer tokens than it counted");
    }
    document.tokens.insert(document.tokens.end(), token, token + count);
    document.is_target.resize(document.tokens.size(), 0);
    token += count;
    for (const Json& span : targets.at(i)) {
      const auto from = span.at(0).get<std::ptrdiff_t>();
      const auto to = span.at(1).get<std::ptrdiff_t>();
      if (from < 0 || to < from || to > count)
        worker_.refuse_death("gave targets outside of a record");
      const auto marks = document.is_target.begin() + start;
      std::fill(marks + from, marks + to, std::uint8_t{1});
    }
  }
}

std::vector<std::int32_t> TokenizerWorker::prompt(const std::string& text) {
  return worker_.ask(Json{{"do", "prompt"}, {"text", text}}.dump()).tokens;
}

std::vector<std::int32_t> TokenizerWorker::chat_prompt(const std::string& chat) {
  // As it is, like a record: parsed and written again, its keys would be in another order, which
  // templates show.
  return worker_.ask(fmt::format(R"({{"do":"prompt","record":{}}})", chat)).tokens;
}

std::string TokenizerWorker::decode(std::span<const std::int32_t> prompt,
                                    std::span<const std::int32_t> tokens) {
  return text_of(worker_.ask(Json{{"do", "decode"}, {"prompt", prompt}, {"ids", tokens}}.dump()));
}

std::string TokenizerWorker::decode_all(std::span<const std::int32_t> tokens) {
  return text_of(worker_.ask(Json{{"do", "decode"}, {"ids", tokens}}.dump()));
}

std::string TokenizerWorker::text_of(const PythonWorker::Answer& answer) {
  std::string text;
  worker_.understand([&] { text = answer.head.at("text").get<std::string>(); });
  return text;
}

std::string PythonTokenizers::hash(const fs::path& directory) const {
  const std::string hash = open_tokenizer(directory).hash;
  return chat_template_.empty() ? hash : store::hash_text(hash + " " + chat_template_);
}

std::string PythonTokenizers::program_hash() const { return PythonWorker::script_hash(); }

std::unique_ptr<data::Tokenizer> PythonTokenizers::start(const fs::path& directory) const {
  return std::make_unique<TokenizerWorker>(directory, chat_template_);
}

}  // namespace strait::tokenizer
