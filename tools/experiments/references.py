#!/usr/bin/python3
# What scikit-learn reaches with its defaults on the sets of $TRIREME_DATA: the references of defaults.sh. Without a test part every
# fifth row is for test.
import gzip, os, sys, warnings
import numpy as np
from sklearn.datasets import load_svmlight_files, load_svmlight_file
from sklearn.linear_model import LogisticRegression, LinearRegression, Ridge
from sklearn.preprocessing import StandardScaler, MaxAbsScaler
from sklearn.pipeline import make_pipeline
from sklearn.metrics import roc_auc_score, mean_squared_error
warnings.filterwarnings('ignore')
D=os.environ['TRIREME_DATA']+'/'
def text(f):
    return gzip.open(D+f,'rt') if f.endswith('.gz') else open(D+f)
def svm(train,test=None):
    if test:
        a,b,c,d=load_svmlight_files([D+train,D+test],zero_based='auto'); return a,b,c,d
    X,y=load_svmlight_file(D+train,zero_based='auto'); t=np.arange(len(y))%5==4
    return X[~t],y[~t],X[t],y[t]
def table(f,label,delim,skip,train_test=None):
    X=np.loadtxt(text(f),delimiter=delim,skiprows=skip)
    y=X[:,label]; X=np.delete(X,label,1)
    if train_test:
        Z=np.loadtxt(text(train_test),delimiter=delim,skiprows=skip); z=Z[:,label]; return X,y,np.delete(Z,label,1),z
    t=np.arange(len(y))%5==4
    return X[~t],y[~t],X[t],y[t]
def run(name,data,kind):
    X,y,T,z=data
    if hasattr(X,'toarray') and X.shape[1]<800 and kind.endswith('dense'): X,T=X.toarray(),T.toarray()
    scaled=kind.endswith('dense') or kind.endswith('scaled')
    pre=[StandardScaler(with_mean=not hasattr(X,'toarray'))] if scaled else []
    if kind.startswith('reg'):
        p=make_pipeline(*pre,Ridge()).fit(X,y)
        print(name,X.shape,kind,'rmse %.6g'%mean_squared_error(z,p.predict(T),squared=False),flush=True)
    else:
        p=make_pipeline(*pre,LogisticRegression(max_iter=1000)).fit(X,y)
        auc=roc_auc_score(z,p.decision_function(T)) if len(np.unique(y))==2 else float('nan')
        print(name,X.shape,kind,'accuracy %.5f auc %.5f'%(p.score(T,z),auc),flush=True)
S=[('skin',lambda:table('skin/Skin_NonSkin.txt.gz',-1,'\t',0),'cls dense'),
('a9a',lambda:svm('a9a/a9a.gz','a9a/a9a.t.gz'),'cls'),
('w8a',lambda:svm('w8a/w8a.gz'),'cls'),
('agaricus',lambda:svm('agaricus/agaricus.txt.train','agaricus/agaricus.txt.test'),'cls'),
('rcv1',lambda:svm('rcv1-small/rcv1-small.train.libsvm.gz','rcv1-small/rcv1-small.test.libsvm'),'cls'),
('news2',lambda:svm('20news-binary/news20b.train.libsvm.gz','20news-binary/news20b.test.libsvm.gz'),'cls'),
('amazon',lambda:svm('amazon-access/amazon.train.libsvm.gz','amazon-access/amazon.test.libsvm.gz'),'cls'),
('frappe',lambda:svm('frappe/frappe.validation.libfm.gz','frappe/frappe.test.libfm.gz'),'cls'),
('kdd',lambda:svm('kddcup99/kdd99.train.libsvm.gz','kddcup99/kdd99.test.libsvm.gz'),'cls'),
('kdd',lambda:svm('kddcup99/kdd99.train.libsvm.gz','kddcup99/kdd99.test.libsvm.gz'),'cls scaled'),
('higgs',lambda:table('higgs-10k/higgs.train.gz',0,None,0,'higgs-10k/higgs.test'),'cls dense'),
('abalone_scale',lambda:svm('abalone/abalone_scale'),'reg'),
('abalone_scale',lambda:svm('abalone/abalone_scale'),'reg dense'),
('housing',lambda:svm('housing/housing_scale'),'reg'),
('housing',lambda:svm('housing/housing_scale'),'reg dense'),
('cal',lambda:table('cal-housing/cal_housing.data.gz',-1,',',1),'reg dense'),
('cal svm',lambda:svm('cal-housing/cal_housing.libsvm.gz'),'reg dense'),
('casp',lambda:table('casp/CASP.csv.gz',0,',',1),'reg dense'),
('casp svm',lambda:svm('casp/casp.libsvm.gz'),'reg dense'),
('hflights',lambda:svm('hflights/hflights.train.libsvm.gz','hflights/hflights.test.libsvm.gz'),'reg'),
('covtype2',lambda:(lambda a,b,c,d:(a,b==2,c,d==2))(*svm('covtype20k/covtype20k.libsvm.gz')),'cls dense'),
('covtype7',lambda:table('covtype20k/covtype.20k.data.gz',-1,',',0),'cls dense'),
('covtype7',lambda:svm('covtype20k/covtype20k.libsvm.gz'),'cls dense'),
('letter',lambda:svm('letter/letter.libsvm.gz'),'cls dense'),
('usps',lambda:svm('usps/usps.train.libsvm.gz','usps/usps.test.libsvm.gz'),'cls'),
('usps',lambda:svm('usps/usps.train.libsvm.gz','usps/usps.test.libsvm.gz'),'cls dense'),
]
for n,d,k in S:
    try: run(n,d(),k)
    except Exception as e: print(n,k,'ERR',e,flush=True)
