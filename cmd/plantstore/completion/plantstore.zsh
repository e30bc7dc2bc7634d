#compdef plantstore
_plantstore() {
  local -a candidates
  candidates=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ "${candidates[1]}" == :files ]]; then
    compset -P '--*='
    _files
  elif [[ -n "${candidates[1]}" ]]; then
    compadd -- "${candidates[@]}"
  fi
}
if [[ "${funcstack[1]}" == _plantstore ]]; then
  _plantstore "$@"
else
  (( $+functions[compdef] )) || { autoload -U compinit && compinit }
  compdef _plantstore plantstore
fi
