#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "launcher/base/piped_process.h"

namespace strait::tokenizer {

// strait-tokenizer.py in a process of its own. Requests go in as JSON; an answer is JSON and
// perhaps token ids. One thread.
//
// UserError: the process cannot be started, has died, or does not answer within its time.
// StoreError bad_input: what it refuses, but for a refusal that names one of the records of the
// request.
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

}  // namespace strait::tokenizer
