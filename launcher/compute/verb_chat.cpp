#include <poll.h>
#include <unistd.h>

#include <iostream>

#include "framework/data/chat_record.h"
#include "framework/store/store_error.h"
#include "launcher/compute/ask_model.h"
#include "launcher/compute/generation.h"
#include "launcher/compute/verbs.h"

namespace strait::compute {
namespace {

// A user on stdin and a model take turns. The model gets the whole chat with each message.
class Chat : public Generation {
 public:
  Chat(const models::ModelDescription& model, TextCoder& coder, cli::GenerationOptions options,
       std::int64_t cache_bits)
      : Generation({}, model, coder, options, {.cache_bits = cache_bits}),
        coder_(coder),
        options_(std::move(options)) {
    on_text([](std::size_t, const std::string& more) {
      std::cout << (isatty(STDOUT_FILENO) != 0 ? base::printable_lines(more) : more);
      cli::flush_output();
    });
    on_done([this](std::size_t, const Completion& answer) {
      messages_.push_back({{"role", "assistant"}, {"content", answer.text}});
      std::cout << '\n';
      prompted_ = false;
    });
  }

  std::vector<run::InferenceRequest> poll() override {
    if (!Generation::finished()) return Generation::poll();
    if (!std::exchange(prompted_, true) && isatty(STDIN_FILENO) != 0) {
      std::cout << "> ";
      cli::flush_output();
    }
    if (const auto line = next_line()) say(*line);
    return Generation::poll();
  }
  bool finished() const override { return closed_ && unread_.empty() && Generation::finished(); }
  bool idle() const override { return Generation::finished(); }

 private:
  // Of stdin, without waiting. The last one need not have an end.
  std::optional<std::string> next_line() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (!closed_ && unread_.find('\n') == std::string::npos && ::poll(&input, 1, 0) > 0) {
      std::array<char, 4096> bytes{};
      const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      if (count <= 0) closed_ = true;
      unread_.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
    const std::size_t end = unread_.find('\n');
    if (end == std::string::npos && !(closed_ && !unread_.empty())) return std::nullopt;
    std::string line = unread_.substr(0, end);
    unread_.erase(0, end == std::string::npos ? end : end + 1);
    return line;
  }

  void say(const std::string& text) {
    prompted_ = false;
    if (text.find_first_not_of(" \t\r") == std::string::npos) return;
    messages_.push_back({{"role", "user"}, {"content", text}});
    try {
      const nlohmann::json chat{{"messages", messages_}};
      const std::string line = chat.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      add({coder_.encode_chat(data::prompt_record(nlohmann::json::parse(line), line, "the chat")),
           "the chat"},
          options_);
    } catch (const base::UserError& error) {
      refuse_message(error.what());
    } catch (const store::StoreError& error) {
      refuse_message(error.what());
    }
  }

  void refuse_message(const std::string& why) {
    messages_.erase(messages_.size() - 1);
    cli::warn(fmt::format("{}; the last message was dropped", why));
  }

  TextCoder& coder_;
  const cli::GenerationOptions options_;
  nlohmann::json messages_ = nlohmann::json::array();
  std::string unread_;
  bool closed_ = false;
  bool prompted_ = false;
};

}  // namespace

base::ExitCode perform(const cli::ChatFlags& flags) {
  const plan::RunFile run = load_run(flags.run);
  const auto coder = make_text_coder(tokenizer_of_run(run, flags.tokenizer), run.plan.recipe);
  const RunCheckpoint source = find_checkpoint(flags.run, flags.checkpoint);
  cli::warn(source.warning);
  Chat client(models::describe(source.config), *coder, flags.options, flags.cache_bits);
  return ask_model(flags.run, source, choose_place(source, flags.place), client);
}

}  // namespace strait::compute
