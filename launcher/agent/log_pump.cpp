#include "launcher/agent/log_pump.h"

#include <fstream>
#include <system_error>
#include <utility>

namespace strait::agent {
namespace {

// Below the limit of a text in a message, even where every byte has to be replaced.
constexpr std::size_t kMostAtOnce = 8192;

}  // namespace

LogPump::LogPump(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code absent;
  const std::uintmax_t size = std::filesystem::file_size(file_, absent);
  taken_ = absent ? 0 : size;
}

std::string LogPump::take() {
  std::ifstream in(file_, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(taken_));
  std::string text(kMostAtOnce, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  taken_ += text.size();
  return text;
}

}  // namespace strait::agent
