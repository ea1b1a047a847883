# What zsh makes of lines that begin with «trireme» when Tab is pressed behind them:  zsh -f complete.zsh FOLDER LINE…
# In FOLDER is the function _trireme. A line is run then, by a function that says its words instead.
zmodload zsh/zpty
zpty shell "TERM=dumb zsh -f -i"
zpty -w shell "trireme() { [[ \$1 != help ]] || { command trireme \$@; return }; print -r -- \"ra\"\"n:\$*:\" }
PS1='rea''dy> '; fpath=($1 \$fpath); autoload -U compinit; compinit -D -u; unsetopt beep"
shift
for line; do
    zpty -r -m shell said '*ready> *'
    zpty -w -n shell "$line"$'\t\n'
    zpty -r -m shell said '*ran:*:*'
    print -r -- "${${said##*ran:}%%:*}"
done
zpty -d shell
