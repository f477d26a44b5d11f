#include "launcher/tokenizer/python_worker.h"

#include <cstring>

#include "framework/store/file_hash.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"
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
  throw base::UserError(base::ExitCode::bad_input,
                        "{} {}{} (its Python is {}, which STRAIT_PYTHON "
                        "changes)",
                        name_, how, last.empty() ? "" : fmt::format(": {}", base::printable(last)),
                        base::python_for(kScript));
}

}  // namespace strait::tokenizer
