#include "launcher/cli/html_page.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>

namespace strait::cli {

using nlohmann::json;

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string folded(const char* title, const std::string& text) {
  if (text.empty()) return "";
  return fmt::format("<details><summary>{}</summary><pre tabindex=\"0\">{}</pre></details>\n",
                     title, escaped(text));
}

std::string html_page(const std::string& title, const std::string& head, const std::string& foot,
                      const json& shown) {
  std::string text = shown.dump(-1, ' ', false, json::error_handler_t::replace);
  // Inside a script only this could end it.
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;) {
    text.replace(at, 1, "\\u003c");
  }
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title><style>{1}</style></head><body>\n<header>"
      "<h1>{0}</h1>\n{2}</header>\n<main></main>\n<footer>{3}</footer>\n"
      "<script type=\"application/json\" id=\"data\">{4}</script>\n<script>{5}</script>"
      "</body></html>\n",
      escaped(title), kReportStyle, head, foot, text, kReportScript);
}

}  // namespace strait::cli
