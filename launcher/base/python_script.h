#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace strait::base {

// A script of the build, for what Python's packages do and the programs do not link. It lies beside
// them.
struct PythonScript {
  const char* file;      // "strait-tokenizer.py"
  const char* purpose;   // "runs tokenizers"
  const char* packages;  // "the packages tokenizers and jinja2"
};

// UserError: it is not there.
std::filesystem::path file_of(const PythonScript& script);

// $STRAIT_PYTHON, else .venv/bin/python beside or above this program, else python3. UserError:
// there is no such program, or this user may not run it.
std::string python_for(const PythonScript& script);

// argv of the process; Python's own variables do not reach it. UserError: as above.
std::vector<std::string> start_of(const PythonScript& script);

// Runs `words`, start_of() and arguments, in place of this program. UserError: it cannot.
[[noreturn]] void replace_process(std::vector<std::string> words, const PythonScript& script);

}  // namespace strait::base
