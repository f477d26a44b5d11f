#include <poll.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "framework/data/chat_record.h"
#include "framework/store/store_error.h"
#include "launcher/cli/ask_model.h"
#include "launcher/cli/generation.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {
namespace {

struct ChatFlags {
  std::filesystem::path run;
  std::string tokenizer;
  std::string checkpoint = kNewest;
  Place place = Place::automatic;
  GenerationOptions options;
};

// A user on stdin and a model take turns. The model gets the whole chat with each message.
class Chat : public Generation {
 public:
  Chat(const models::ModelDescription& model, TextCoder& coder, GenerationOptions options)
      : Generation({}, model, coder, options, {}), coder_(coder), options_(std::move(options)) {
    on_text([](std::size_t, const std::string& more) {
      std::cout << (isatty(STDOUT_FILENO) != 0 ? base::printable_lines(more) : more);
      flush_output();
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
      flush_output();
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
    warn(fmt::format("{}; the last message was dropped", why));
  }

  TextCoder& coder_;
  const GenerationOptions options_;
  nlohmann::json messages_ = nlohmann::json::array();
  std::string unread_;
  bool closed_ = false;
  bool prompted_ = false;
};

base::ExitCode chat(const ChatFlags& flags) {
  const plan::RunFile run = read_run(flags.run);
  const auto coder = make_text_coder(tokenizer_of_run(run, flags.tokenizer));
  const RunCheckpoint source = find_checkpoint(flags.run, flags.checkpoint);
  warn(source.warning);
  Chat client(models::describe(source.config), *coder, flags.options);
  return ask_model(flags.run, source, choose_place(source, flags.place), client);
}

}  // namespace

void add_chat(CLI::App& cli, Command& command) {
  const auto flags = std::make_shared<ChatFlags>();
  CLI::App* verb = cli.add_subcommand("chat", "chat with a trained model in the terminal");
  add_run_argument(verb, flags->run)->required();
  flags->options.max_tokens = 512;
  add_sampling(verb, flags->options);
  verb->add_option("--tokenizer", flags->tokenizer, "a directory, or bytes; else the run's own");
  add_which_checkpoint(verb, flags->checkpoint);
  add_place(verb, flags->place);
  verb->callback([flags, &command] { command = [flags] { return chat(*flags); }; });
}

}  // namespace strait::cli
